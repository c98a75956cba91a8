//! Behaviours: how an agent works in steps, each with a prompt and a structured result (spec BHV,
//! PRM; docs/behaviours.md).
//!
//! A behaviour is data: a YAML document that is checked and compiled. The built-in ones are
//! replaced by a tenant's, and these by an agent's, by name.
//!
//! | module | contents |
//! |---|---|
//! | `document` | the document as it is written, and its errors |
//! | `definition` | the compiled behaviour |
//! | `toolbox` | the tools and skills of a behaviour |
//! | `set`, `builtin` | the behaviours of an agent, and those that are shipped |
//! | `template` | `{{name}}` in texts |
//! | `marker` | sections of a prompt, which no text from outside can open or close |
//! | `memory` | the memory section within its budget |
//! | `input` | the input section, and whether there is any |
//! | `compose` | the request to the model |
//! | `protocol` | the form of a result, as the model is told |
//! | `result` | the parser of results |
//! | `answer` | checks of a model's answer as a result of its behaviour |
//! | `steps` | the steps of a turn in the journal |
//! | `state` | which behaviour and step come next |
//! | `summary` | the text that a step leaves to the next one |

mod answer;
mod builtin;
mod compose;
mod definition;
mod document;
mod input;
mod marker;
mod memory;
mod protocol;
mod result;
mod set;
pub mod state;
mod steps;
mod summary;
mod template;
mod toolbox;

pub use answer::{hands_over, next_behavior, read_result};
pub use builtin::{BUILT_IN, DEFAULT_BEHAVIOR};
pub use compose::{BehaviorSkill, Composed, IncludedFile, RoleTexts, compose};
pub use definition::{Behavior, FileAccessMode, ModelPolicy, StepLimits};
pub use document::{DocumentError, MAX_SOURCE_BYTES, spelling_warnings};
pub use input::{BehaviorInput, StepPosition};
pub use memory::{Bucket, BucketKind};
pub use protocol::{Protocol, result_schema};
pub use result::{MAX_TAGS, ResultError, parse_result};
pub use set::BehaviorSet;
pub use steps::{
    CallOutcome, FinishedEntries, RESULT_TOOL, StepEntries, is_result_call, last_reply,
    makes_result,
};
pub use summary::{ActionOutcome, FinishedStep, step_summary};
pub use toolbox::{META_TOOLS, ToolFilter, Toolbox};
