//! What is counted. Labels are of closed sets, and no tenant is one.

/// An update or a message came in.
pub fn update(channel: &'static str, outcome: &'static str) {
    metrics::counter!("holdfast_bridge_updates_total", "channel" => channel, "outcome" => outcome)
        .increment(1);
}

/// A try to send a part of a reply has ended.
pub fn delivery(channel: &'static str, outcome: &'static str) {
    metrics::counter!("holdfast_bridge_deliveries_total", "channel" => channel, "outcome" => outcome)
        .increment(1);
}
