//! How something that was once said or written is found again: the decisions, without any I/O.
//!
//! ```text
//!  a document ── chunk::split ──▶ chunks ─┬─ words::terms ──▶ the inverted table
//!  a message ─────────────────────────────┴─ an embedder ───▶ vectors
//!
//!  a question ── Question::read ─┬─ terms ────▶ bm25 ──────┐
//!                                ├─ meaning ──▶ cosine ────┼─▶ fuse::rank ──▶ mmr::spread ──▶ answers
//!                                └─ authors ───────────────┘
//! ```
//!
//! The units, the signals and their weights were chosen by measurement;
//! `docs/decisions/0029-retrieval.md` has the table. Two things carry most of it:
//!
//! - **Words stand in their context, meaning stands alone.** The terms of a unit are its own and
//!   those of the unit before it (an answer rarely repeats its question); its vector is of its own
//!   text only, without its author's name.
//! - **An author is not a word.** Somebody named in a question who wrote some of the units is taken
//!   out of what is embedded and becomes a signal of its own. Left in, the name is the strongest
//!   thing in a short question, and every greeting that holds it comes first.

mod bm25;
mod chunk;
mod fuse;
mod mmr;
mod question;
mod words;

pub use bm25::{Bm25, Collection};
pub use chunk::{Chunk, Limits, split, tokens};
pub use fuse::{Found, Ranked, Share, Weights, decay, rank};
pub use mmr::spread;
pub use question::Question;
pub use words::{term_counts, terms};
