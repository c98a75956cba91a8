//! Addresses, as far as they can be judged without calling them.

/// The host that an address of the web names, with what is before and behind it up to the path.
pub fn host(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    let host = rest.split(['/', '?', '#']).next()?;
    let is_plain = !url.contains(|c: char| c.is_whitespace() || c.is_control());
    (is_plain && !host.is_empty()).then_some(host)
}
