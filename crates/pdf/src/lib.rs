//! The text of a PDF, read where nothing can come of it.
//!
//! A PDF is a program for a printer, written by anybody. The library that reads it panics on what it
//! does not expect, and nothing in it bounds time or memory. So it is read by a process of its own:
//! this very program, called with one word ([`as_child`]), with nothing in its environment, that
//! lowers its own limits, reads from stdin, answers in JSON and ends. [`Reader`] starts it, and ends
//! it when it takes too long. Whatever becomes of it is an [`Error`] here.
//!
//! | module | what it knows |
//! |---|---|
//! | `reader` | this side: how one is started, how many at once, how long it may take |
//! | `child` | the other side: the limits, stdin, stdout |
//! | `pages` | the library: what a document is, what a page says |

mod child;
mod pages;
mod reader;

pub use child::as_child;
pub use pages::{Document, Page};
pub use reader::Reader;

use serde::{Deserialize, Serialize};

/// The most pages that one has.
pub const MOST_PAGES: usize = 2000;

/// The most text that is read, in bytes.
pub const MOST_TEXT: usize = 4 * 1024 * 1024;

/// Why there is no text of a PDF.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Error {
    /// It is none, or damaged beyond what the library repairs.
    #[error("is no PDF that can be read: print it to a new PDF, or give its text")]
    Broken,

    /// A password is needed to read it.
    #[error("is a PDF with a password: give it without one")]
    Encrypted,

    /// It holds pictures of its pages.
    #[error(
        "is a PDF without text, as a scan is: have its text recognised (OCR) first, or give its text"
    )]
    NoText,

    /// It has too many pages.
    #[error("has {have} pages, and {MOST_PAGES} are the most: give it in parts")]
    ManyPages {
        /// How many.
        have: usize,
    },

    /// It has too much text.
    #[error("has more than {MOST_TEXT} bytes of text: give it in parts")]
    MuchText,

    /// Reading it takes more time or memory than one may take.
    #[error("is a PDF that takes too much time or memory to read: give its text, or a simpler one")]
    Heavy,

    /// Others are being read, and it has not come to this one.
    #[error("cannot be read now, since other PDFs are being read: try again in a minute")]
    Busy,

    /// The process that reads could not be started, or did not answer.
    #[error("the reader of PDFs cannot be started")]
    NoReader,
}
