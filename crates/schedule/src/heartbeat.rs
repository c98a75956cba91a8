//! The heartbeat: whether an agent is asked if something needs doing, and what becomes of its answer
//! (spec HBT).
//!
//! The steps, in this order; the first that says so is the last:
//!
//! | step | if | status | reason |
//! |---|---|---|---|
//! | 1 | it is switched off | `skipped` | `disabled` |
//! | 2 | the hours are quiet | `skipped` | `quiet-hours` |
//! | 3 | a run is in flight | `skipped` | `requests-in-flight` |
//! | 4 | there is no `HEARTBEAT.md` | `skipped` | `no-heartbeat-file` |
//! | 4b | there is nothing in it | `ok-empty` | `empty-heartbeat-file` |
//! | 5 | | | the model is asked |
//! | 6 | it fails | `failed` | what it said |
//! | 7 | all is well | `ok-token` | |
//! | 8 | that was said in the last 24 h | `skipped` | `duplicate` |
//! | 9 | | `sent` | it is delivered |

mod answer;
mod config;
mod event;
mod file;
mod hours;
mod recent;
mod steps;

pub use answer::{Answer, HEARTBEAT_OK, NO_REPLY, Said, said};
pub use config::{HeartbeatConfig, HeartbeatTarget};
pub use event::{HeartbeatEvent, Indicator, Status};
pub use file::is_empty;
pub use hours::{ActiveHours, HoursZone, Zones};
pub use recent::{MOST as MOST_RECENT, Recent, WINDOW as RECENT, digest};
pub use steps::{After, BUSY_RETRY, Before, Facts, Reply, after, before, delivered};
