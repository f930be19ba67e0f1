//! Reading a device's time.
