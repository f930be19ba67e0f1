//! Topic templates and MQTT filters.
