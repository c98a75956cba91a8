//! Metrics. Labels are from closed sets and never name a tenant.

/// Counts a received update or message.
pub fn update(channel: &'static str, outcome: &'static str) {
    metrics::counter!("holdfast_bridge_updates_total", "channel" => channel, "outcome" => outcome)
        .increment(1);
}

/// Counts a finished attempt to send a part of a reply.
pub fn delivery(channel: &'static str, outcome: &'static str) {
    metrics::counter!("holdfast_bridge_deliveries_total", "channel" => channel, "outcome" => outcome)
        .increment(1);
}

/// Counts a change of a message that shows an answer while it is written.
pub fn preview(channel: &'static str, outcome: &'static str) {
    metrics::counter!("holdfast_bridge_previews_total", "channel" => channel, "outcome" => outcome)
        .increment(1);
}
