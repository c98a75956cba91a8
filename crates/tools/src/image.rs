//! The `image` tool: describes, measures, resizes and draws pictures.

mod pixels;

use std::{sync::Arc, time::Duration};

use holdfast_types::{Effect, StoredFile};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use self::pixels::{Format, MAX_SIDE_PIXELS, Size};
pub use self::pixels::{ShownPicture, picture_for_models};
use crate::{
    Call, Files, MAX_SENT_BYTES, MediaBackend, Output, Part, Registry, Tool, ToolError, file_path,
    stored_file, untrusted,
};

/// Maximum length of a drawing prompt, in characters: the limit of dall-e-3
/// (<https://platform.openai.com/docs/api-reference/images/create>).
const MAX_PROMPT_CHARS: usize = 4_000;

/// Maximum length of a question about a picture, in characters.
const MAX_QUESTION_CHARS: usize = 4_000;

/// Maximum length of a description that the model gets, in characters.
const MAX_DESCRIPTION_CHARS: usize = 20_000;

/// Work with pictures: look at one of your files (`understand`), measure it (`info`), make a
/// smaller or another kind of it (`resize`), have one drawn (`generate`).
///
/// Pictures that are made are kept among your files; `send_file` sends one with your answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageInput {
    /// What to do.
    #[serde(alias = "action")]
    op: Op,
    /// The picture, as in `media/cat.png`; not for `generate`.
    #[serde(default)]
    path: Option<String>,
    /// What to draw; or what to look for in the picture.
    #[serde(default)]
    prompt: Option<String>,
    /// The most dots wide that it is to be, up to 4096.
    #[serde(default)]
    width: Option<u32>,
    /// The most dots high that it is to be, up to 4096.
    #[serde(default)]
    height: Option<u32>,
    /// `png`, `jpeg` or `webp`, if it is to be another kind.
    #[serde(default)]
    format: Option<Format>,
    /// The size of what is drawn: `1024x1024` unless you say `1536x1024` or `1024x1536`.
    #[serde(default)]
    size: Option<Size>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Op {
    Understand,
    Info,
    Resize,
    Generate,
}

#[derive(Debug)]
pub struct Image<F, S> {
    files: Arc<F>,
    media: Arc<S>,
}

impl<F: Files, S: MediaBackend> Tool<Output> for Image<F, S> {
    const NAME: &'static str = "image";
    // Each drawing costs money.
    const EFFECT: Effect = Effect::Acts;
    const TIMEOUT: Option<Duration> = Some(Duration::from_secs(150));
    type Input = ImageInput;

    async fn call(&self, call: Call, input: ImageInput) -> Result<Output, ToolError> {
        match input.op {
            Op::Generate => self.generate(&call, input).await,
            Op::Understand => self.understand(&call, input).await,
            Op::Info => {
                let (file, content) = self.picture(&call, &input).await?;
                let info = blocking(move || pixels::info(&content)).await?;
                Ok(Output::from(format!(
                    "`{}`: {}, {} × {} dots, {} bytes",
                    file.path, info.kind, info.width, info.height, file.size
                )))
            }
            Op::Resize => self.resize(&call, input).await,
        }
    }
}

impl<F: Files, S: MediaBackend> Image<F, S> {
    async fn picture(
        &self,
        call: &Call,
        input: &ImageInput,
    ) -> Result<(StoredFile, Vec<u8>), ToolError> {
        let Some(path) = &input.path else {
            return Err(ToolError::Tell("say with `path` which of your files it is".to_owned()));
        };
        let file = stored_file(&*self.files, call, path).await?;
        if !file.is_picture() {
            return Err(ToolError::Tell(format!(
                "`{}` is {}, and no picture of a kind that is read here: png, jpeg, webp, gif",
                file.path, file.media_type
            )));
        }
        let found = self.files.read(call, &file_path(path)?).await?;
        let content = found.map(|found| found.content).unwrap_or_default();
        Ok((file, content))
    }

    async fn understand(&self, call: &Call, input: ImageInput) -> Result<Output, ToolError> {
        let (file, content) = self.picture(call, &input).await?;
        let question = input.prompt.as_deref().map(str::trim).filter(|asked| !asked.is_empty());
        let question = question.unwrap_or("Describe this picture.");
        check_length("prompt", question, MAX_QUESTION_CHARS)?;
        match self.media.look(call, question, (&file, content)).await? {
            // A description of a picture from outside may repeat text that is written in the
            // picture.
            Some(said) => Ok(Output::from(untrusted(
                &call.key,
                &format!("a model that looked at `{}`", file.path),
                &said,
                MAX_DESCRIPTION_CHARS,
            ))),
            None => {
                let text = format!("`{}` is shown below.", file.path);
                Ok(Output::from(text).with(Part::Shown(file)))
            }
        }
    }

    async fn resize(&self, call: &Call, input: ImageInput) -> Result<Output, ToolError> {
        let (file, content) = self.picture(call, &input).await?;
        let (width, height) = (input.width, input.height);
        if [width, height].into_iter().flatten().any(|side| !(1..=MAX_SIDE_PIXELS).contains(&side))
        {
            return Err(ToolError::Tell(format!(
                "`width` and `height` are 1 to {MAX_SIDE_PIXELS}"
            )));
        }
        if width.is_none() && height.is_none() && input.format.is_none() {
            return Err(ToolError::Tell(
                "say what is to change: `width`, `height` or `format`".to_owned(),
            ));
        }
        let made =
            blocking(move || pixels::resize(&content, (width, height), input.format)).await?;
        if made.content.len() > MAX_SENT_BYTES {
            return Err(ToolError::Tell(format!(
                "it would have {} bytes, and {MAX_SENT_BYTES} are the most: make it smaller, or a jpeg",
                made.content.len()
            )));
        }
        let text = format!(
            "`{}` was made {} × {} dots, {} bytes.",
            file.path,
            made.width,
            made.height,
            made.content.len()
        );
        let image = Part::Image { media_type: made.media_type.to_owned(), data: made.content };
        Ok(Output::from(text).with(image))
    }

    async fn generate(&self, call: &Call, input: ImageInput) -> Result<Output, ToolError> {
        let prompt = input.prompt.as_deref().map(str::trim).unwrap_or_default();
        if prompt.is_empty() {
            return Err(ToolError::Tell("say with `prompt` what to draw".to_owned()));
        }
        check_length("prompt", prompt, MAX_PROMPT_CHARS)?;
        let size = input.size.unwrap_or_default();
        let drawn = self.media.draw(call, prompt, size.as_str()).await?;
        let info = blocking({
            let content = drawn.content.clone();
            move || pixels::info(&content)
        })
        .await?;
        let text = format!("Drawn by {}: {} × {} dots.", drawn.by, info.width, info.height);
        let image = Part::Image { media_type: info.media_type.to_owned(), data: drawn.content };
        Ok(Output::from(text).with(image).record(json!({ "by": drawn.by })))
    }
}

impl Registry {
    /// Adds the tool for pictures among these files.
    #[must_use]
    pub fn with_images<F: Files, S: MediaBackend>(self, files: Arc<F>, studio: Arc<S>) -> Self {
        self.with(Image { files, media: studio })
    }
}

fn check_length(field: &str, text: &str, most: usize) -> Result<(), ToolError> {
    let length = text.chars().count();
    if length > most {
        return Err(ToolError::Tell(format!(
            "`{field}` has {length} characters, and {most} are the most"
        )));
    }
    Ok(())
}

/// Runs image processing, which takes long, outside the async threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, ToolError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ToolError::Broken(error.into()))?.map_err(ToolError::Tell)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        files::fake::{Memory, ask, refused},
        media::fake::Fake,
        mesh::tests::call,
    };

    fn world(sees: bool) -> (Call, Arc<Memory>, Registry) {
        let files = Arc::new(Memory::default());
        let studio = Arc::new(Fake { sees, picture: pixels::tests::png(8, 4) });
        (call(), Arc::clone(&files), Registry::default().with_images(files, studio))
    }

    #[tokio::test]
    async fn a_picture_is_measured_and_made_smaller_in_proportion() {
        let (call, files, tools) = world(true);
        files.put(&call, "a.png", pixels::tests::png(400, 200));

        let info = ask(&tools, &call, "image", r#"{"op":"info","path":"a.png"}"#).await;
        assert!(info.starts_with("`a.png`: png, 400 × 200 dots, "), "{info}");

        let input = r#"{"op":"resize","path":"a.png","width":100,"format":"jpeg"}"#;
        let made = tools.call(call.clone(), "image", input).await.unwrap();
        let [Part::Image { media_type, data }] = &made.parts[..] else { panic!("{made:?}") };
        let info = pixels::info(data).unwrap();
        assert_eq!((media_type.as_str(), info.width, info.height), ("image/jpeg", 100, 50));
    }

    #[tokio::test]
    async fn a_model_that_sees_is_shown_the_picture_and_another_is_told() {
        let input = r#"{"op":"understand","path":"a.png","prompt":"who?"}"#;
        let (call, files, tools) = world(true);
        files.put(&call, "a.png", pixels::tests::png(2, 2));
        let seen = tools.call(call, "image", input).await.unwrap();
        assert!(matches!(&seen.parts[..], [Part::Shown(file)] if file.path == "a.png"), "{seen:?}");

        let (call, files, tools) = world(false);
        files.put(&call, "a.png", pixels::tests::png(2, 2));
        let told = ask(&tools, &call, "image", input).await;
        assert!(told.contains("someone, asked: who?"), "{told}");
    }

    #[tokio::test]
    async fn what_is_drawn_is_a_picture_of_the_agents() {
        let (call, _, tools) = world(true);

        let input = r#"{"op":"generate","prompt":"a cat","size":"1536x1024"}"#;
        let drawn = tools.call(call, "image", input).await.unwrap();

        assert_eq!(drawn.for_llm, "Drawn by fake: 8 × 4 dots.");
        assert!(matches!(&drawn.parts[..], [Part::Image { .. }]));
    }

    #[tokio::test]
    async fn what_cannot_be_done_is_told_with_the_reason() {
        let (call, files, tools) = world(true);
        files.put(&call, "a.txt", "text");
        files.put(&call, "a.png", pixels::tests::png(2, 2));
        files.put(&call, "bad.png", b"\x89PNG\r\n\x1a\n no more".to_vec());

        for (input, told) in [
            (r#"{"op":"info"}"#, "say with `path` which of your files it is"),
            (
                r#"{"op":"info","path":"a.txt"}"#,
                "`a.txt` is text/plain, and no picture of a kind that is read here: png, jpeg, webp, gif",
            ),
            (
                r#"{"op":"resize","path":"a.png"}"#,
                "say what is to change: `width`, `height` or `format`",
            ),
            (
                r#"{"op":"resize","path":"a.png","width":4097}"#,
                "`width` and `height` are 1 to 4096",
            ),
            (r#"{"op":"generate"}"#, "say with `prompt` what to draw"),
        ] {
            assert_eq!(refused(&tools, &call, "image", input).await, told);
        }
        let bad = refused(&tools, &call, "image", r#"{"op":"info","path":"bad.png"}"#).await;
        assert!(bad.starts_with("the picture cannot be read"), "{bad}");
    }
}
