//! Lines on the control socket from anywhere.
//!
//! Whatever a client sends: no panic; what is taken for a request is an object that names its verb,
//! and means the same when it is written and parsed again.

use thermocline_wire::control::Request;

/// Panics where the line broke a law.
pub fn check(line: &[u8]) {
    let Ok(request) = Request::parse(line) else { return };
    let object: serde_json::Value = serde_json::from_slice(line).expect("what was parsed is JSON");
    let told = object["verb"].as_str().expect("a request names its verb");
    let written = serde_json::to_value(&request).expect("a request can be written");
    assert_eq!(written["verb"], told);
    // Every figure that was written was also read.
    for (key, value) in written.as_object().expect("it is an object") {
        assert!(object.get(key).is_none_or(|given| given == value), "{key}: {value} of {object}");
    }
    let text = serde_json::to_vec(&request).expect("a request can be written");
    assert_eq!(Request::parse(&text).expect("what was written can be read"), request);
    assert_eq!(request.page().is_some(), matches!(request, Request::Explain { .. }));
}
