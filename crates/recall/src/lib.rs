//! Retrieval algorithms for memories, documents and turns, without any I/O.
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
//! `docs/decisions/0029-retrieval.md` has the table. Two decisions carry most of it:
//!
//! - **Keywords use context, embeddings do not.** The terms of a unit are its own and those of the
//!   unit before it (an answer rarely repeats its question); its vector is of its own text only,
//!   without its author's name.
//! - **An author is not a keyword.** If a question names an author of some of the units, the name
//!   is removed from the text to embed and becomes a signal of its own. Left in, the name would
//!   dominate a short question, and every greeting with that name would come first.

mod bm25;
mod chunk;
mod fuse;
mod mmr;
mod question;
mod words;

pub use bm25::{Bm25, Collection};
pub use chunk::{Chunk, ChunkLimits, split, tokens};
pub use fuse::{RankCandidate, RankedUnit, ScoreShares, Weights, decay, rank};
pub use mmr::spread;
pub use question::Question;
pub use words::terms;
