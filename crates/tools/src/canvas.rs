//! The `canvas` tool: shows pages beside the conversation, for programs to draw (spec TOL-026).
//!
//! The surfaces are stored with the session, so that a program that connects later sees them;
//! connected programs are told about changes. A repeated call has the same result: it writes, and
//! does not act.

mod a2ui;

use std::{future::Future, sync::Arc};

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::a2ui::{SurfaceState, Surfaces};
use crate::{Call, Tool, ToolError};

/// Maximum size of a surface's content, in bytes.
const MAX_SURFACE_BYTES: usize = 256 * 1024;

/// Maximum length of a title, in characters.
const MAX_TITLE_CHARS: usize = 200;

/// Maximum length of a surface's name, in bytes.
const MAX_SURFACE_NAME_LEN: usize = 64;

/// Maximum number of messages per call.
const MAX_MESSAGES_PER_CALL: usize = 1_000;

/// Name of the surface if a call names none.
const DEFAULT_SURFACE: &str = "main";

/// Access of the tool to the conversation's canvas. An error is an internal failure: the turn ends
/// and may be retried.
pub trait Canvases: Send + Sync + 'static {
    fn surfaces(
        &self,
        call: &Call,
    ) -> impl Future<Output = anyhow::Result<Vec<CanvasSurface>>> + Send;

    /// Stores `put`, deletes `gone`, all or nothing, and notifies connected programs. The inner
    /// error is a reason for the model.
    fn change(
        &self,
        call: &Call,
        put: Vec<CanvasSurface>,
        gone: Vec<String>,
    ) -> impl Future<Output = anyhow::Result<Result<(), String>>> + Send;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanvasSurface {
    pub name: String,
    /// Title of the page; may be empty.
    pub title: String,
    pub kind: SurfaceFormat,
    /// Content; for A2UI a JSON list of the messages that build the surface.
    pub content: String,
    /// Whether the surface is visible.
    pub shown: bool,
}

/// Format of a surface's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SurfaceFormat {
    A2ui,
    Markdown,
    /// HTML, which programs show in an isolated frame.
    Html,
}

impl SurfaceFormat {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::A2ui => "a2ui",
            Self::Markdown => "markdown",
            Self::Html => "html",
        }
    }
}

/// Show the person something beside the conversation: a text, or a form, list or view of A2UI v0.8
/// messages.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CanvasInput {
    /// `present` shows a surface anew, `update` changes it by messages, `hide` takes it out of
    /// sight, `reset` removes it (all, if none is named), `snapshot` tells what is shown now.
    action: Action,
    /// Which surface; `main` if you say nothing.
    #[serde(default, alias = "surfaceId", alias = "surface_id")]
    surface: Option<String>,
    /// What it is called.
    #[serde(default)]
    title: Option<String>,
    /// For `present`: the text, as Markdown.
    #[serde(default)]
    markdown: Option<String>,
    /// For `present`: the text, as HTML.
    #[serde(default)]
    html: Option<String>,
    /// For `present` and `update`: messages, each with one key of surfaceUpdate, dataModelUpdate,
    /// beginRendering, deleteSurface.
    #[serde(default)]
    messages: Option<Vec<Value>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Action {
    Present,
    #[serde(alias = "a2ui_push", alias = "push")]
    Update,
    Hide,
    #[serde(alias = "a2ui_reset")]
    Reset,
    Snapshot,
}

#[derive(Debug)]
pub struct Canvas<S>(pub Arc<S>);

impl<S: Canvases> Tool for Canvas<S> {
    const NAME: &'static str = "canvas";
    const EFFECT: Effect = Effect::Writes;
    type Input = CanvasInput;

    async fn call(&self, call: Call, input: CanvasInput) -> Result<String, ToolError> {
        let named = input.surface.as_deref().filter(|name| !name.is_empty());
        let named = named.map(surface_name).transpose().map_err(ToolError::Tell)?;
        let name = named.unwrap_or(DEFAULT_SURFACE);
        let there = self.0.surfaces(&call).await?;
        let (put, gone, done) = match input.action {
            Action::Snapshot => return Ok(snapshot(&there, named)),
            Action::Present => {
                let (put, gone) = present(&there, name, &input).map_err(ToolError::Tell)?;
                (put, gone, format!("`{name}` is shown."))
            }
            Action::Update => {
                let (put, gone) = update(&there, name, &input).map_err(ToolError::Tell)?;
                (put, gone, "It is changed.".to_owned())
            }
            Action::Hide => {
                let found = there.iter().find(|one| one.name == name);
                let found = found.ok_or_else(|| ToolError::Tell(unknown_surface(name, &there)))?;
                (
                    vec![CanvasSurface { shown: false, ..found.clone() }],
                    vec![],
                    format!("`{name}` is hidden."),
                )
            }
            Action::Reset => {
                let all = there.iter().map(|one| one.name.clone());
                let gone = all.filter(|one| named.is_none_or(|named| one == named)).collect();
                (vec![], gone, "It is removed.".to_owned())
            }
        };
        match self.0.change(&call, put, gone).await? {
            Ok(()) => Ok(done),
            Err(reason) => Err(ToolError::Tell(reason)),
        }
    }
}

type SurfaceChange = (Vec<CanvasSurface>, Vec<String>);

/// Replaces a surface, or makes it visible again.
fn present(
    there: &[CanvasSurface],
    name: &str,
    input: &CanvasInput,
) -> Result<SurfaceChange, String> {
    let title = checked_title(input)?.unwrap_or_default();
    let text = |kind, content: &String| {
        let content = content.clone();
        let new = CanvasSurface {
            name: name.to_owned(),
            title: title.clone(),
            kind,
            content,
            shown: true,
        };
        Ok((vec![check_content(new)?], Vec::new()))
    };
    match (&input.markdown, &input.html, &input.messages) {
        (Some(markdown), None, None) => text(SurfaceFormat::Markdown, markdown),
        (None, Some(html), None) => text(SurfaceFormat::Html, html),
        (None, None, Some(messages)) => {
            let mut surfaces = Surfaces::from([(name.to_owned(), None)]);
            apply_messages(&mut surfaces, there, messages, name)?;
            to_change(surfaces, there, Some((name, title)))
        }
        (None, None, None) => {
            // Without content: the surface was hidden, and becomes visible again.
            let found = there.iter().find(|one| one.name == name);
            let found = found.ok_or(
                "there is nothing to show: say it in `markdown`, `html` or `messages`".to_owned(),
            )?;
            Ok((vec![CanvasSurface { shown: true, ..found.clone() }], Vec::new()))
        }
        _ => Err("say one of `markdown`, `html` and `messages`".to_owned()),
    }
}

/// Changes surfaces by messages.
fn update(
    there: &[CanvasSurface],
    name: &str,
    input: &CanvasInput,
) -> Result<SurfaceChange, String> {
    if input.markdown.is_some() || input.html.is_some() {
        return Err("`update` takes `messages`: show a text anew with `present`".to_owned());
    }
    let messages = input.messages.as_deref().ok_or("`messages` is missing: a list".to_owned())?;
    let mut surfaces = Surfaces::new();
    apply_messages(&mut surfaces, there, messages, name)?;
    let title = checked_title(input)?;
    to_change(surfaces, there, title.map(|title| (name, title)))
}

/// Applies messages to the stored surfaces that they name, except those that start empty.
fn apply_messages(
    surfaces: &mut Surfaces,
    there: &[CanvasSurface],
    messages: &[Value],
    name: &str,
) -> Result<(), String> {
    if messages.len() > MAX_MESSAGES_PER_CALL {
        return Err(format!("{MAX_MESSAGES_PER_CALL} messages are the most of one call"));
    }
    for one in there.iter().filter(|one| one.kind == SurfaceFormat::A2ui) {
        if !surfaces.contains_key(&one.name)
            && surface_names(messages, name).any(|named| named == one.name)
        {
            surfaces.insert(one.name.clone(), Some(SurfaceState::read(&one.name, &one.content)?));
        }
    }
    a2ui::apply(surfaces, messages, name)
}

/// Names of the surfaces in the messages.
fn surface_names<'a>(messages: &'a [Value], usual: &'a str) -> impl Iterator<Item = &'a str> {
    messages
        .iter()
        .filter_map(Value::as_object)
        .flat_map(|message| message.values())
        .map(move |body| body.get("surfaceId").and_then(Value::as_str).unwrap_or(usual))
}

/// Turns the result of messages into a change.
fn to_change(
    surfaces: Surfaces,
    there: &[CanvasSurface],
    titled: Option<(&str, String)>,
) -> Result<SurfaceChange, String> {
    let (mut put, mut gone) = (Vec::new(), Vec::new());
    for (name, made) in surfaces {
        let Some(made) = made else {
            gone.push(name);
            continue;
        };
        let old = there.iter().find(|one| one.name == name);
        let title = match &titled {
            Some((of, title)) if *of == name => title.clone(),
            _ => old.map(|old| old.title.clone()).unwrap_or_default(),
        };
        let content = made.write(&name);
        put.push(check_content(CanvasSurface {
            name,
            title,
            kind: SurfaceFormat::A2ui,
            content,
            shown: true,
        })?);
    }
    Ok((put, gone))
}

/// Describes the surfaces as JSON.
fn snapshot(there: &[CanvasSurface], named: Option<&str>) -> String {
    let wanted = there.iter().filter(|one| named.is_none_or(|named| one.name == named));
    let surfaces: Vec<Value> = wanted
        .map(|one| {
            let CanvasSurface { name, title, kind, content, shown } = one;
            let content = match kind {
                // Stored A2UI content is always JSON.
                SurfaceFormat::A2ui => serde_json::from_str(content).unwrap_or_default(),
                SurfaceFormat::Markdown | SurfaceFormat::Html => Value::String(content.clone()),
            };
            json!({"surface": name, "title": title, "kind": kind, "shown": shown, "content": content})
        })
        .collect();
    Value::Array(surfaces).to_string()
}

fn check_content(new: CanvasSurface) -> Result<CanvasSurface, String> {
    if new.content.len() > MAX_SURFACE_BYTES {
        return Err(format!(
            "`{}` would be {} bytes, and {MAX_SURFACE_BYTES} are the most: show less of it",
            new.name,
            new.content.len()
        ));
    }
    if new.content.contains('\0') {
        return Err("what is shown has a NUL in it: leave it out".to_owned());
    }
    Ok(new)
}

fn checked_title(input: &CanvasInput) -> Result<Option<String>, String> {
    let title = input.title.as_deref().map(crate::untrusted::one_line);
    match title.as_ref().map(|title| title.chars().count()) {
        Some(got) if got > MAX_TITLE_CHARS => {
            Err(format!("a title has {MAX_TITLE_CHARS} characters at most, and this one {got}"))
        }
        _ => Ok(title),
    }
}

/// Checks a surface's name.
fn surface_name(name: &str) -> Result<&str, String> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.:".contains(letter);
    match (1..=MAX_SURFACE_NAME_LEN).contains(&name.len()) && name.chars().all(fits) {
        true => Ok(name),
        false => Err(format!(
            "`{}` is no surface's name: 1 to {MAX_SURFACE_NAME_LEN} letters, digits and any of `-_.:`",
            crate::untrusted::one_line(name).chars().take(80).collect::<String>()
        )),
    }
}

fn unknown_surface(name: &str, there: &[CanvasSurface]) -> String {
    let all: Vec<&str> = there.iter().map(|one| one.name.as_str()).collect();
    match all.as_slice() {
        [] => format!("there is no surface `{name}`: nothing is shown"),
        all => format!("there is no surface `{name}`; there are: {}", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{Registry, mesh::tests::call};

    #[derive(Debug, Default)]
    struct Fake(Mutex<Vec<CanvasSurface>>);

    impl Canvases for Fake {
        async fn surfaces(&self, _: &Call) -> anyhow::Result<Vec<CanvasSurface>> {
            Ok(self.0.lock().unwrap().clone())
        }

        async fn change(
            &self,
            _: &Call,
            put: Vec<CanvasSurface>,
            gone: Vec<String>,
        ) -> anyhow::Result<Result<(), String>> {
            let mut all = self.0.lock().unwrap();
            let replaced = |one: &CanvasSurface| put.iter().any(|new| new.name == one.name);
            all.retain(|one| !gone.contains(&one.name) && !replaced(one));
            all.extend(put.clone());
            Ok(Ok(()))
        }
    }

    async fn ask(fake: &Arc<Fake>, input: Value) -> Result<String, String> {
        let tools = Registry::default().with(Canvas(Arc::clone(fake)));
        match tools.call(call(), "canvas", &input.to_string()).await {
            Ok(output) => Ok(output.for_llm),
            Err(ToolError::Tell(text)) => Err(text),
            Err(error) => panic!("{error:?}"),
        }
    }

    async fn shot(fake: &Arc<Fake>) -> Value {
        serde_json::from_str(&ask(fake, json!({"action": "snapshot"})).await.unwrap()).unwrap()
    }

    fn text(id: &str, says: &str) -> Value {
        json!({"id": id, "component": {"Text": {"text": {"literalString": says}}}})
    }

    #[tokio::test]
    async fn a_text_is_shown_hidden_shown_again_and_removed() {
        let fake = Arc::default();
        let present = json!({"action": "present", "title": "Plan", "markdown": "# Plan"});

        assert_eq!(ask(&fake, present).await.unwrap(), "`main` is shown.");
        let plan = |shown: bool| {
            json!([{"surface": "main", "title": "Plan", "kind": "markdown", "shown": shown,
                    "content": "# Plan"}])
        };
        assert_eq!(shot(&fake).await, plan(true));
        ask(&fake, json!({"action": "hide"})).await.unwrap();
        assert_eq!(shot(&fake).await, plan(false));
        ask(&fake, json!({"action": "present"})).await.unwrap();
        assert_eq!(shot(&fake).await, plan(true));
        ask(&fake, json!({"action": "reset"})).await.unwrap();
        assert_eq!(shot(&fake).await, json!([]));
    }

    #[tokio::test]
    async fn messages_make_surfaces_and_change_them() {
        let fake = Arc::default();
        let made = json!([
            {"surfaceUpdate": {"components": [text("a", "one")]}},
            {"beginRendering": {"root": "a"}},
        ]);
        let present = json!({"action": "present", "surface": "form", "messages": made});
        ask(&fake, present.clone()).await.unwrap();

        let more = json!([
            {"surfaceUpdate": {"surfaceId": "form", "components": [text("b", "two")]}},
            {"surfaceUpdate": {"surfaceId": "other", "components": [text("c", "three")]}},
        ]);
        let update = json!({"action": "a2ui_push", "messages": more});
        ask(&fake, update.clone()).await.unwrap();
        let once = shot(&fake).await;
        ask(&fake, update).await.unwrap();

        assert_eq!(shot(&fake).await, once, "the same call again changes nothing");
        let form = once.as_array().unwrap().iter().find(|one| one["surface"] == "form").unwrap();
        let components = &form["content"][0]["surfaceUpdate"]["components"];
        assert_eq!(*components, json!([text("a", "one"), text("b", "two")]));
        assert_eq!(once.as_array().unwrap().len(), 2);

        ask(&fake, present).await.unwrap();
        let one = ask(&fake, json!({"action": "snapshot", "surface": "form"})).await.unwrap();
        assert!(!one.contains("two") && !one.contains("three"), "{one}");
        let gone = json!([{"deleteSurface": {"surfaceId": "other"}}]);
        ask(&fake, json!({"action": "update", "messages": gone})).await.unwrap();
        assert_eq!(shot(&fake).await.as_array().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn what_cannot_be_shown_is_refused_and_nothing_is_changed() {
        let fake = Arc::default();
        let large = "x".repeat(MAX_SURFACE_BYTES + 1);
        for (input, told) in [
            (json!({"action": "present"}), "there is nothing to show"),
            (json!({"action": "present", "markdown": "a", "html": "b"}), "say one of"),
            (json!({"action": "present", "markdown": large}), "262144 are the most"),
            (json!({"action": "present", "surface": "a/b", "markdown": "x"}), "no surface's name"),
            (json!({"action": "present", "title": "x".repeat(201), "html": "x"}), "200 characters"),
            (json!({"action": "update", "markdown": "x"}), "`update` takes `messages`"),
            (json!({"action": "update"}), "`messages` is missing"),
            (json!({"action": "update", "messages": [{"eval": {}}]}), "message 0 is none"),
            (
                json!({"action": "hide", "surface": "x"}),
                "there is no surface `x`: nothing is shown",
            ),
        ] {
            let refused = ask(&fake, input).await.unwrap_err();
            assert!(refused.contains(told), "{refused}");
        }
        assert_eq!(shot(&fake).await, json!([]));
    }
}
