//! A host that shows another time.

use std::path::PathBuf;

/// The library that shows a process another time; `None` where it is not installed.
pub fn faketime() -> Option<PathBuf> {
    let libraries = std::fs::read_dir("/usr/lib").expect("there is one");
    let places = libraries.map(|entry| entry.expect("readable").path().join("faketime"));
    places.map(|place| place.join("libfaketimeMT.so.1")).find(|path| path.exists())
}
