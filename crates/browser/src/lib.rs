//! Chromium, driven by agents through its DevTools protocol.
//!
//! | module | contents |
//! |---|---|
//! | `launch` | starting Chromium, or connecting to one that runs elsewhere |
//! | `cdp` | the protocol: calls and responses over a web socket (decision 0021), and rules for where tabs go |
//! | `browser` | one browser, with a window for each conversation |
//! | `page` | actions on a page |
//! | `snapshot` | the visible content of a page, by accessibility roles |
//!
//! ## What can go wrong
//!
//! A page is untrusted code. It runs in Chromium's own sandbox, in a context without the cookies of
//! other conversations, and all its network traffic goes through the proxy of `holdfast-proxy`: names
//! are resolved there once, and the connection goes to the address that was checked. So a redirect, a frame, a script,
//! a worker, a web socket or a name whose address changes between two lookups reaches nothing that
//! a direct fetch could not. A browser that breaks out of the page's sandbox is in a network namespace
//! with the proxy only. The *content* of a page is not checked here: the code that shows it to
//! a model must mark it as untrusted.

mod browser;
mod cdp;
mod config;
mod error;
mod keys;
mod launch;
mod page;
mod snapshot;

pub use browser::Browser;
pub use cdp::NavigationRule;
pub use config::{Config, Isolation};
pub use error::Error;
pub use page::{Page, PointerAction, Screenshot, Tab};
