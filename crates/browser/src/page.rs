//! Actions on the current tab of a window.

mod element;

use std::{fmt, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    Error,
    cdp::{Cdp, NavigationRule},
    snapshot,
};

/// Maximum wait for a page to load.
const LOAD_TIMEOUT: Duration = Duration::from_secs(20);

/// Polling interval, and the delay after an action.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum width and height of a full-page screenshot, in CSS pixels.
const MAX_SCREENSHOT_PIXELS: f64 = 8_000.0;

/// Width and height of a window, in CSS pixels.
const VIEWPORT_PIXELS: (u32, u32) = (1280, 800);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tab {
    /// Target id in the DevTools protocol.
    pub id: String,
    pub title: String,
    pub url: String,
    pub is_current: bool,
}

/// Action of the mouse pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointerAction {
    Click,
    DoubleClick,
    Hover,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Screenshot {
    pub media_type: &'static str,
    pub data: Vec<u8>,
}

impl fmt::Debug for Screenshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shot").field("bytes", &self.data.len()).finish_non_exhaustive()
    }
}

/// The current tab of a window.
#[derive(Debug, Clone)]
pub struct Page {
    cdp: Arc<Cdp>,
    context: String,
    target: String,
    session: String,
}

/// Attaches to a tab and returns its session id.
pub(crate) async fn attach(cdp: &Cdp, target: &str) -> Result<String, Error> {
    let params = json!({ "targetId": target, "flatten": true });
    let attached = cdp.call(None, "Target.attachToTarget", params).await?;
    let session = attached["sessionId"].as_str().unwrap_or_default().to_owned();
    // Enables the events that report dialogs.
    cdp.call(Some(&session), "Page.enable", json!({})).await?;
    let (width, height) = VIEWPORT_PIXELS;
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

    async fn call(&self, method: &str, params: Value) -> Result<Value, Error> {
        self.cdp.call(Some(&self.session), method, params).await
    }

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
    /// [`Error::Refused`] if the window has no such tab.
    pub async fn close_tab(&self, id: &str) -> Result<(), Error> {
        if !self.tabs().await?.iter().any(|tab| tab.id == id) {
            return Err(Error::Refused("there is no such tab".to_owned()));
        }
        self.cdp.call(None, "Target.closeTarget", json!({ "targetId": id })).await.map(drop)
    }

    /// Navigates to a URL and waits until the page is loaded. A rule decides about each address that the
    /// tab goes to from now on, by redirects or scripts, until [`release`](Self::release) or the next
    /// navigation. Frames, and tabs that the page opens, have no rule.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if the page cannot be loaded, or leads where the rule does not allow.
    pub async fn navigate(&self, url: &str, rule: Option<NavigationRule>) -> Result<(), Error> {
        match rule {
            Some(rule) => self.cdp.restrict((&self.target, &self.session), rule).await?,
            None => self.release(),
        }
        let gone = self.call("Page.navigate", json!({ "url": url })).await?;
        let failure = gone["errorText"].as_str().filter(|why| !why.is_empty());
        if failure.is_none() {
            self.wait_until_loaded().await?;
        }
        match (self.cdp.refusal(&self.target), failure) {
            (Some(refusal), _) => Err(Error::Refused(refusal)),
            (None, Some(why)) => Err(Error::Refused(format!("no page came: {why}"))),
            (None, None) => Ok(()),
        }
    }

    /// Lets the tab go anywhere.
    pub fn release(&self) {
        self.cdp.release(&self.target);
    }

    /// Waits until the page is loaded, for 20 s at most. A page that still loads then is used as it
    /// is.
    pub async fn wait_until_loaded(&self) -> Result<(), Error> {
        let until = Instant::now() + LOAD_TIMEOUT;
        loop {
            let state = self.evaluate_within("document.readyState", Duration::from_secs(5)).await;
            match state {
                Ok(state) if state == "complete" => return Ok(()),
                // During a navigation there is no page to evaluate in.
                Ok(_) | Err(Error::Refused(_)) => {}
                Err(error) => return Err(error),
            }
            if Instant::now() >= until {
                return Ok(());
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// URL and title of the page.
    pub async fn location(&self) -> Result<(String, String), Error> {
        let info = json!({ "targetId": self.target });
        let info = self.cdp.call(None, "Target.getTargetInfo", info).await?;
        let text = |name: &str| info["targetInfo"][name].as_str().unwrap_or_default().to_owned();
        Ok((text("url"), text("title")))
    }

    /// Visible content of the page, by accessibility roles.
    pub async fn snapshot(&self) -> Result<String, Error> {
        Ok(snapshot::format_tree(&self.call("Accessibility.getFullAXTree", json!({})).await?))
    }

    /// Evaluates an expression and returns its value as JSON.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with the exception that the page threw.
    pub async fn evaluate(&self, expression: &str) -> Result<Value, Error> {
        self.evaluate_within(expression, Duration::from_secs(10)).await
    }

    async fn evaluate_within(&self, expression: &str, limit: Duration) -> Result<Value, Error> {
        let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let params = json!({
            "expression": expression,
            "returnByValue": true,
            "awaitPromise": true,
            "timeout": millis,
            "userGesture": true,
        });
        let asked = tokio::time::timeout(limit, self.call("Runtime.evaluate", params)).await;
        value_or_exception(asked.map_err(|_| Error::Timeout(limit.as_secs()))??)
    }

    /// Waits until the page contains `text`, or for the whole of `limit` if there is none.
    ///
    /// # Errors
    ///
    /// If the text does not appear in time.
    pub async fn wait(&self, text: Option<&str>, limit: Duration) -> Result<(), Error> {
        let Some(text) = text else {
            sleep(limit).await;
            return Ok(());
        };
        let there =
            format!("(document.body ? document.body.innerText : '').includes({})", json!(text));
        let until = Instant::now() + limit;
        loop {
            match self.evaluate_within(&there, Duration::from_secs(5)).await {
                Ok(is_there) if is_there == true => return Ok(()),
                Ok(_) | Err(Error::Refused(_)) => {}
                Err(error) => return Err(error),
            }
            if Instant::now() >= until {
                return Err(Error::Timeout(limit.as_secs()));
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Screenshot of the visible part, or of the whole page.
    pub async fn screenshot(&self, whole: bool) -> Result<Screenshot, Error> {
        let mut params = json!({ "format": "jpeg", "quality": 75 });
        if whole {
            let metrics = self.call("Page.getLayoutMetrics", json!({})).await?;
            let size = &metrics["cssContentSize"];
            let (width, height) = (size["width"].as_f64(), size["height"].as_f64());
            params["captureBeyondViewport"] = json!(true);
            params["clip"] = json!({
                "x": 0, "y": 0, "scale": 1,
                "width": width.unwrap_or(f64::from(VIEWPORT_PIXELS.0)).min(MAX_SCREENSHOT_PIXELS),
                "height": height.unwrap_or(f64::from(VIEWPORT_PIXELS.1)).min(MAX_SCREENSHOT_PIXELS),
            });
        }
        let taken = self.call("Page.captureScreenshot", params).await?;
        let data = STANDARD.decode(taken["data"].as_str().unwrap_or_default());
        let data = data.map_err(|_| Error::Refused("it took no picture".to_owned()))?;
        Ok(Screenshot { media_type: "image/jpeg", data })
    }

    /// Waits for an action to take effect: a click may load another page.
    async fn settle(&self) -> Result<(), Error> {
        sleep(POLL_INTERVAL).await;
        self.wait_until_loaded().await
    }
}

/// Value of an evaluated function, or the exception that it threw.
fn value_or_exception(mut answer: Value) -> Result<Value, Error> {
    if let Some(thrown) = answer.get("exceptionDetails") {
        let told = thrown["exception"]["description"].as_str().or(thrown["text"].as_str());
        let told = told.unwrap_or("it failed").lines().next().unwrap_or_default();
        return Err(Error::Refused(told.chars().take(500).collect()));
    }
    Ok(answer["result"]["value"].take())
}
