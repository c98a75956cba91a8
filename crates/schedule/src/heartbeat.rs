//! Heartbeat rules: whether an agent's model is asked if something needs doing, and what happens to
//! its answer (spec HBT).
//!
//! Steps in order; the first that applies ends the heartbeat:
//!
//! | step | if | status | reason |
//! |---|---|---|---|
//! | 1 | the heartbeat is disabled | `skipped` | `disabled` |
//! | 2 | outside the active hours | `skipped` | `quiet-hours` |
//! | 3 | a run is in flight | `skipped` | `requests-in-flight` |
//! | 4 | there is no `HEARTBEAT.md` | `skipped` | `no-heartbeat-file` |
//! | 4b | `HEARTBEAT.md` has no content | `ok-empty` | `empty-heartbeat-file` |
//! | 5 | | | the model is asked |
//! | 6 | the call fails | `failed` | error of the call |
//! | 7 | the answer is `HEARTBEAT_OK` | `ok-token` | |
//! | 8 | the same text was sent in the last 24 h | `skipped` | `duplicate` |
//! | 9 | otherwise | `sent` | the answer is delivered |

mod answer;
mod config;
mod event;
mod file;
mod hours;
mod recent;
mod sleep;
mod steps;

pub use answer::{AnswerKind, HEARTBEAT_OK, HeartbeatAnswer, NO_REPLY, classify_answer};
pub use config::{HeartbeatConfig, HeartbeatTarget};
pub use event::{HeartbeatEvent, Indicator, Status};
pub use file::is_empty;
pub use hours::{ActiveHours, HoursZone, Zones};
pub use recent::{
    MAX_RECENT_ANSWERS as MOST_RECENT, RECENT_WINDOW as RECENT, RecentAnswers, digest,
};
pub use sleep::{SLEEP_AFTER, sleep_interval};
pub use steps::{
    AgentFacts, AskDecision, BUSY_RETRY_DELAY, DeliveryDecision, ModelReply, decide_ask,
    decide_delivery, delivered_event, prompt,
};
