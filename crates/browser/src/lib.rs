//! A browser that agents drive: Chromium, by its DevTools protocol.
//!
//! | module | what it knows |
//! |---|---|
//! | `launch` | starting Chromium, or finding one that runs elsewhere |
//! | `cdp` | the protocol: a call and its answer over a web socket (decision 0021) |
//! | `proxy` | the way out: every connection of a page is judged here |
//! | `browser` | one browser, with a window of its own for each conversation |
//! | `page` | what is done in a window |
//! | `snapshot` | what is to be seen there, by roles |
//!
//! ## What can go wrong
//!
//! A page is a stranger's program. It runs behind Chromium's own walls, in a
//! context without the cookies of any other conversation, and everything that
//! it asks of the network goes through `proxy`: names are resolved there once,
//! and the connection goes to what was judged. So a redirect, a frame, a script,
//! a worker, a web socket or a name that changes its address between two looks
//! reaches nothing that a fetch of the first page could not. What a page *says*
//! is not judged here: whoever shows it to a model marks it.

mod browser;
mod cdp;
mod config;
mod error;
mod keys;
mod launch;
mod page;
mod proxy;
mod snapshot;

pub use browser::Browser;
pub use config::Config;
pub use error::Error;
pub use page::{Page, Pointer, Shot, Tab};
pub use proxy::{Judged, Way};
