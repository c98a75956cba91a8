//! Text extraction from PDFs, in a process of its own.
//!
//! PDFs come from untrusted sources. The parsing library panics on unexpected input and bounds
//! neither time nor memory. So each PDF is read by a child process: this same program, started
//! with one argument ([`read_pdf`]) and an empty environment. The child lowers its own limits,
//! reads from stdin, answers in JSON and exits. The reader starts the child and kills it when it
//! takes too long. However the child fails, the caller gets an [`Error`].
//!
//! | module | contents |
//! |---|---|
//! | `reader` | the parent's side: starting children, concurrency, timeouts |
//! | `child` | the child's side: limits, stdin, stdout |
//! | `pages` | the calls of the parsing library: document and page text |

mod child;
mod pages;
mod reader;

pub use child::read_pdf;
pub use pages::{Document, Page};
pub use reader::PdfReader;

use serde::{Deserialize, Serialize};

/// Maximum number of pages of a PDF; longer ones are refused.
pub const MAX_PAGES: usize = 2000;

/// Maximum text of a PDF, in bytes; more is refused.
pub const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;

/// Reason why a PDF has no text. The messages complete a sentence whose subject is the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Error {
    /// Not a PDF, or damaged beyond what the library repairs.
    #[error("is no PDF that can be read: print it to a new PDF, or give its text")]
    Broken,

    #[error("is a PDF with a password: give it without one")]
    Encrypted,

    /// Pages without text, such as a scan.
    #[error(
        "is a PDF without text, as a scan is: have its text recognised (OCR) first, or give its text"
    )]
    NoText,

    #[error("has {have} pages, and {MAX_PAGES} are the most: give it in parts")]
    ManyPages { have: usize },

    #[error("has more than {MAX_TEXT_BYTES} bytes of text: give it in parts")]
    MuchText,

    /// The child exceeded its time or memory, or crashed.
    #[error("is a PDF that takes too much time or memory to read: give its text, or a simpler one")]
    Heavy,

    /// No child was free within the waiting time.
    #[error("cannot be read now, since other PDFs are being read: try again in a minute")]
    Busy,

    /// The child could not be started, or did not answer as expected.
    #[error("the reader of PDFs cannot be started")]
    NoReader,
}
