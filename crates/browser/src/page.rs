//! What is done in a window.

mod element;

use std::{fmt, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{Error, cdp::Cdp, snapshot};

/// How long a page may take to be there.
const LOADING: Duration = Duration::from_secs(20);

/// How often it is looked whether something is so by now.
const LOOK: Duration = Duration::from_millis(100);

/// The tallest picture of a whole page, in pixels.
const TALLEST: f64 = 8_000.0;

/// The size of a window, in pixels.
const SIZE: (u32, u32) = (1280, 800);

/// A tab of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tab {
    /// Its id.
    pub id: String,
    /// The page's title.
    pub title: String,
    /// Its address.
    pub url: String,
    /// Whether it is looked at.
    pub is_current: bool,
}

/// What the pointer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pointer {
    /// One click.
    Click,
    /// Two.
    DoubleClick,
    /// It comes to stand there.
    Hover,
}

/// A picture of a page.
#[derive(Clone, PartialEq, Eq)]
pub struct Shot {
    /// Its media type.
    pub media_type: &'static str,
    /// Its bytes.
    pub data: Vec<u8>,
}

impl fmt::Debug for Shot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shot").field("bytes", &self.data.len()).finish_non_exhaustive()
    }
}

/// The tab that is looked at.
#[derive(Debug, Clone)]
pub struct Page {
    cdp: Arc<Cdp>,
    context: String,
    target: String,
    session: String,
}

/// Makes a tab's session.
pub(crate) async fn attach(cdp: &Cdp, target: &str) -> Result<String, Error> {
    let params = json!({ "targetId": target, "flatten": true });
    let attached = cdp.call(None, "Target.attachToTarget", params).await?;
    let session = attached["sessionId"].as_str().unwrap_or_default().to_owned();
    // Its events tell of dialogs.
    cdp.call(Some(&session), "Page.enable", json!({})).await?;
    let (width, height) = SIZE;
    let size = json!({
        "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
    });
    cdp.call(Some(&session), "Emulation.setDeviceMetricsOverride", size).await?;
    Ok(session)
}

impl Page {
    pub(crate) const fn new(
        cdp: Arc<Cdp>,
        context: String,
        target: String,
        session: String,
    ) -> Self {
        Self { cdp, context, target, session }
    }

    async fn ask(&self, method: &str, params: Value) -> Result<Value, Error> {
        self.cdp.call(Some(&self.session), method, params).await
    }

    /// The window's tabs.
    ///
    /// # Errors
    ///
    /// If the browser is away.
    pub async fn tabs(&self) -> Result<Vec<Tab>, Error> {
        let targets = self.cdp.call(None, "Target.getTargets", json!({})).await?;
        let targets = targets["targetInfos"].as_array().into_iter().flatten();
        let ours = targets.filter(|target| {
            target["type"] == "page" && target["browserContextId"] == self.context.as_str()
        });
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(ours
            .map(|target| Tab {
                id: text(&target["targetId"]),
                title: text(&target["title"]),
                url: text(&target["url"]),
                is_current: target["targetId"] == self.target.as_str(),
            })
            .collect())
    }

    /// Closes a tab.
    ///
    /// # Errors
    ///
    /// If the window has no such tab.
    pub async fn close_tab(&self, id: &str) -> Result<(), Error> {
        if !self.tabs().await?.iter().any(|tab| tab.id == id) {
            return Err(Error::Refused("there is no such tab".to_owned()));
        }
        self.cdp.call(None, "Target.closeTarget", json!({ "targetId": id })).await.map(drop)
    }

    /// Goes to an address, and waits until the page is there.
    ///
    /// # Errors
    ///
    /// If it cannot be had.
    pub async fn navigate(&self, url: &str) -> Result<(), Error> {
        let gone = self.ask("Page.navigate", json!({ "url": url })).await?;
        match gone["errorText"].as_str() {
            Some(why) if !why.is_empty() => Err(Error::Refused(format!("no page came: {why}"))),
            _ => self.ready().await,
        }
    }

    /// Waits until the page is there, as far as it ever is.
    ///
    /// # Errors
    ///
    /// If the browser is away.
    pub async fn ready(&self) -> Result<(), Error> {
        let until = Instant::now() + LOADING;
        loop {
            let state = self.run("document.readyState", Duration::from_secs(5)).await;
            match state {
                Ok(state) if state == "complete" => return Ok(()),
                // Between two pages there is none to ask.
                Ok(_) | Err(Error::Refused(_)) => {}
                Err(error) => return Err(error),
            }
            if Instant::now() >= until {
                return Ok(());
            }
            sleep(LOOK).await;
        }
    }

    /// The page's address and title.
    ///
    /// # Errors
    ///
    /// If the browser is away.
    pub async fn place(&self) -> Result<(String, String), Error> {
        let info = json!({ "targetId": self.target });
        let info = self.cdp.call(None, "Target.getTargetInfo", info).await?;
        let text = |name: &str| info["targetInfo"][name].as_str().unwrap_or_default().to_owned();
        Ok((text("url"), text("title")))
    }

    /// What is to be seen, by roles.
    ///
    /// # Errors
    ///
    /// If the browser is away.
    pub async fn snapshot(&self) -> Result<String, Error> {
        Ok(snapshot::lines(&self.ask("Accessibility.getFullAXTree", json!({})).await?))
    }

    /// What an expression gives, as JSON.
    ///
    /// # Errors
    ///
    /// With what the page threw.
    pub async fn evaluate(&self, expression: &str) -> Result<Value, Error> {
        self.run(expression, Duration::from_secs(10)).await
    }

    async fn run(&self, expression: &str, limit: Duration) -> Result<Value, Error> {
        let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let params = json!({
            "expression": expression,
            "returnByValue": true,
            "awaitPromise": true,
            "timeout": millis,
            "userGesture": true,
        });
        let asked = tokio::time::timeout(limit, self.ask("Runtime.evaluate", params)).await;
        returned(asked.map_err(|_| Error::Slow(limit.as_secs()))??)
    }

    /// Waits until a text is to be read on the page, or for so long.
    ///
    /// # Errors
    ///
    /// If it is not within that time.
    pub async fn wait(&self, text: Option<&str>, limit: Duration) -> Result<(), Error> {
        let Some(text) = text else {
            sleep(limit).await;
            return Ok(());
        };
        let there =
            format!("(document.body ? document.body.innerText : '').includes({})", json!(text));
        let until = Instant::now() + limit;
        loop {
            match self.run(&there, Duration::from_secs(5)).await {
                Ok(is_there) if is_there == true => return Ok(()),
                Ok(_) | Err(Error::Refused(_)) => {}
                Err(error) => return Err(error),
            }
            if Instant::now() >= until {
                return Err(Error::Slow(limit.as_secs()));
            }
            sleep(LOOK).await;
        }
    }

    /// A picture of what is in sight, or of the whole page.
    ///
    /// # Errors
    ///
    /// If the browser is away.
    pub async fn screenshot(&self, whole: bool) -> Result<Shot, Error> {
        let mut params = json!({ "format": "jpeg", "quality": 75 });
        if whole {
            let metrics = self.ask("Page.getLayoutMetrics", json!({})).await?;
            let size = &metrics["cssContentSize"];
            let (width, height) = (size["width"].as_f64(), size["height"].as_f64());
            params["captureBeyondViewport"] = json!(true);
            params["clip"] = json!({
                "x": 0, "y": 0, "scale": 1,
                "width": width.unwrap_or(f64::from(SIZE.0)).min(TALLEST),
                "height": height.unwrap_or(f64::from(SIZE.1)).min(TALLEST),
            });
        }
        let taken = self.ask("Page.captureScreenshot", params).await?;
        let data = STANDARD.decode(taken["data"].as_str().unwrap_or_default());
        let data = data.map_err(|_| Error::Refused("it took no picture".to_owned()))?;
        Ok(Shot { media_type: "image/jpeg", data })
    }

    /// Lets what was just done take effect: a click may lead to another page.
    async fn settle(&self) -> Result<(), Error> {
        sleep(LOOK).await;
        self.ready().await
    }
}

/// What a function gave, or what it threw.
fn returned(mut answer: Value) -> Result<Value, Error> {
    if let Some(thrown) = answer.get("exceptionDetails") {
        let told = thrown["exception"]["description"].as_str().or(thrown["text"].as_str());
        let told = told.unwrap_or("it failed").lines().next().unwrap_or_default();
        return Err(Error::Refused(told.chars().take(500).collect()));
    }
    Ok(answer["result"]["value"].take())
}
