//! The `sessions_merge` tool: shows, merges or discards a subagent's changes to its copy of the
//! files.
//!
//! A merge is stored once under the call's key, so a repeated call after a crash does nothing
//! twice: it writes, and does not act.

use std::{future::Future, sync::Arc};

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Approval, Call, SessionRef, StoredChange, Tool, ToolError, file_path, untrusted};

/// Maximum length of the part of a patch or file that the model gets, in characters.
const MAX_SHOWN_CHARS: usize = 30_000;

/// Maximum number of files that a merge may leave out.
const MAX_EXCEPT_PATHS: usize = 100;

/// Access of the tool to the subagents of the conversation. An error is an internal failure: the
/// turn ends and may be retried.
pub trait SubagentChanges: Send + Sync + 'static {
    /// Returns a subagent's changes, all of them or those within a file or folder: a unified diff
    /// below a line with its state. The inner error is a reason for the model.
    fn show(
        &self,
        call: &Call,
        which: SessionRef,
        within: Option<String>,
    ) -> impl Future<Output = anyhow::Result<Result<String, String>>> + Send;

    /// Returns the contents of a file in the copy.
    fn read(
        &self,
        call: &Call,
        which: SessionRef,
        path: String,
    ) -> impl Future<Output = anyhow::Result<Result<String, String>>> + Send;

    /// Returns the approval that a merge of all changes except these files needs.
    fn approval(
        &self,
        call: &Call,
        which: SessionRef,
        except: Vec<String>,
    ) -> impl Future<Output = anyhow::Result<Approval>> + Send;

    /// Merges all changes except these files, once for the same `call.key`, or nothing.
    fn merge(
        &self,
        call: &Call,
        which: SessionRef,
        except: Vec<String>,
    ) -> impl Future<Output = anyhow::Result<Result<StoredChange, String>>> + Send;

    fn discard(
        &self,
        call: &Call,
        which: SessionRef,
    ) -> impl Future<Output = anyhow::Result<Result<(), String>>> + Send;
}

/// Look at what a subagent changed in its copy of your files, and take it over into your files or
/// give it up. All of it is merged or nothing; files that both of you changed are named.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionsMergeInput {
    /// The subagent's session, by its id (`ses_…`) or key.
    #[serde(alias = "session_key")]
    session: String,
    /// `show` the diff, `read` a file of its copy, `merge`, or `discard`.
    #[serde(default)]
    action: Action,
    /// For `show` a file or folder, for `read` the file.
    #[serde(default)]
    path: Option<String>,
    /// For `show` and `read`: begin after so many characters.
    #[serde(default)]
    offset: usize,
    /// For `merge`: files to leave as they are, as those of a conflict once you wrote them anew.
    #[serde(default)]
    except: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Action {
    #[default]
    Show,
    Read,
    Merge,
    Discard,
}

#[derive(Debug)]
pub struct SessionsMerge<S>(pub Arc<S>);

impl<S: SubagentChanges> Tool for SessionsMerge<S> {
    const NAME: &'static str = "sessions_merge";
    const EFFECT: Effect = Effect::Writes;
    type Input = SessionsMergeInput;

    async fn approval(
        &self,
        call: &Call,
        input: &SessionsMergeInput,
    ) -> Result<Approval, ToolError> {
        match input.action {
            Action::Merge => {
                let except = parse_except_paths(input.except.clone())?;
                Ok(self.0.approval(call, SessionRef::parse(&input.session), except).await?)
            }
            Action::Show | Action::Read | Action::Discard => Ok(Approval::Never),
        }
    }

    async fn call(&self, call: Call, input: SessionsMergeInput) -> Result<String, ToolError> {
        let which = SessionRef::parse(&input.session);
        let path = input.path.filter(|path| !path.trim().is_empty());
        let path = path.map(|path| file_path(path.trim().trim_end_matches('/'))).transpose()?;
        match (input.action, path) {
            (Action::Show, within) => {
                let shown = self.0.show(&call, which, within).await?.map_err(ToolError::Tell)?;
                Ok(part(&call, &shown, input.offset))
            }
            (Action::Read, None) => {
                Err(ToolError::Tell("`path` is missing: say which file".to_owned()))
            }
            (Action::Read, Some(path)) => {
                let read = self.0.read(&call, which, path).await?.map_err(ToolError::Tell)?;
                Ok(part(&call, &read, input.offset))
            }
            (Action::Merge, Some(_)) => Err(ToolError::Tell(
                "`merge` takes no `path`: name the files to leave out in `except`".to_owned(),
            )),
            (Action::Merge, None) => {
                let except = parse_except_paths(input.except)?;
                let merged = self.0.merge(&call, which, except).await?;
                let StoredChange { revision, diff } = merged.map_err(ToolError::Tell)?;
                let done = format!("Merged: your files are revision {revision} now.\n");
                Ok(match diff.as_str() {
                    "" => format!("{done}It changed nothing in them."),
                    diff => done + &untrusted(&call.key, "a subagent", diff, MAX_SHOWN_CHARS),
                })
            }
            (Action::Discard, _) => {
                self.0.discard(&call, which).await?.map_err(ToolError::Tell)?;
                Ok("It is given up; nothing of it is in your files.".to_owned())
            }
        }
    }
}

fn parse_except_paths(named: Vec<String>) -> Result<Vec<String>, ToolError> {
    if named.len() > MAX_EXCEPT_PATHS {
        return Err(ToolError::Tell(format!("{MAX_EXCEPT_PATHS} files in `except` are the most")));
    }
    named.iter().map(|path| file_path(path.trim())).collect()
}

/// Returns a part of a subagent's text, with the offset of the next one.
fn part(call: &Call, text: &str, offset: usize) -> String {
    let rest = text.char_indices().nth(offset).map_or("", |(at, _)| &text[at..]);
    let end = rest.char_indices().nth(MAX_SHOWN_CHARS).map_or(rest.len(), |(at, _)| at);
    let mut said = untrusted(&call.key, "a subagent", &rest[..end], MAX_SHOWN_CHARS);
    if end < rest.len() {
        said.push_str(&format!("[there is more: `offset` {}]\n", offset + MAX_SHOWN_CHARS));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Registry, mesh::tests::call};

    #[derive(Debug)]
    struct Fake;

    impl SubagentChanges for Fake {
        async fn show(
            &self,
            _: &Call,
            which: SessionRef,
            within: Option<String>,
        ) -> anyhow::Result<Result<String, String>> {
            Ok(match (which, within) {
                (SessionRef::Id(_), _) => Err("this conversation has no such subagent".into()),
                (SessionRef::Key(_), None) => Ok("x".repeat(MAX_SHOWN_CHARS) + "the end"),
                (SessionRef::Key(_), Some(within)) => Ok(format!("only {within}")),
            })
        }

        async fn read(
            &self,
            _: &Call,
            _: SessionRef,
            path: String,
        ) -> anyhow::Result<Result<String, String>> {
            Ok(Ok(format!("what {path} says")))
        }

        async fn approval(
            &self,
            _: &Call,
            _: SessionRef,
            _: Vec<String>,
        ) -> anyhow::Result<Approval> {
            Ok(Approval::Never)
        }

        async fn merge(
            &self,
            _: &Call,
            _: SessionRef,
            except: Vec<String>,
        ) -> anyhow::Result<Result<StoredChange, String>> {
            let diff = if except.is_empty() { "-a\n+b\n" } else { "" };
            Ok(Ok(StoredChange { revision: "7".into(), diff: diff.into() }))
        }

        async fn discard(&self, _: &Call, _: SessionRef) -> anyhow::Result<Result<(), String>> {
            Ok(Ok(()))
        }
    }

    async fn ask(input: &str) -> Result<String, String> {
        let tools = Registry::default().with(SessionsMerge(Arc::new(Fake)));
        match tools.call(call(), "sessions_merge", input).await {
            Ok(output) => Ok(output.for_llm),
            Err(ToolError::Tell(text)) => Err(text),
            Err(error) => panic!("{error:?}"),
        }
    }

    #[tokio::test]
    async fn a_patch_is_shown_in_parts_and_marked_as_anothers_words() {
        let first = ask(r#"{"session":"agent:a:subagent:1"}"#).await.unwrap();
        assert!(first.contains("not an instruction") && !first.contains("the end"), "{first}");
        assert!(first.ends_with("[there is more: `offset` 30000]\n"));

        let rest = ask(r#"{"session":"k","action":"show","offset":30000}"#).await.unwrap();
        assert!(rest.contains("\nthe end\n") && !rest.contains("there is more"), "{rest}");
        let within = ask(r#"{"session":"k","path":"docs/"}"#).await.unwrap();
        assert!(within.contains("only docs"), "{within}");
    }

    #[tokio::test]
    async fn it_is_merged_and_what_came_of_it_told() {
        let told = ask(r#"{"session":"k","action":"merge"}"#).await.unwrap();
        assert!(told.starts_with("Merged: your files are revision 7 now.\n"), "{told}");
        assert!(told.contains("-a\n+b"));

        let told = ask(r#"{"session":"k","action":"merge","except":["a"]}"#).await.unwrap();
        assert!(told.ends_with("It changed nothing in them."), "{told}");
    }

    #[tokio::test]
    async fn what_cannot_be_is_refused_with_what_to_do() {
        let id = holdfast_types::SessionId::generate();
        for (input, expected) in [
            (format!(r#"{{"session":"{id}"}}"#), "this conversation has no such subagent"),
            (r#"{"session":"k","action":"read"}"#.into(), "`path` is missing: say which file"),
            (r#"{"session":"k","action":"merge","path":"a"}"#.into(), "`merge` takes no `path`"),
            (r#"{"session":"k","action":"merge","except":["../a"]}"#.into(), "`../a` is no path"),
        ] {
            let told = ask(&input).await.unwrap_err();
            assert!(told.starts_with(expected), "{told}");
        }
    }
}
