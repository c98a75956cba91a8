//! The `browser` tool: pages that need more than reading.
//!
//! Each conversation has a window of its own, which is empty at first and is closed after a time
//! without use. Page content comes from outside and is marked as untrusted. The browser may reach
//! the same addresses as `web_fetch`: a proxy of [`holdfast_proxy`] checks every connection with
//! the same [guard](crate::web::guard).

use std::{
    fmt::{self, Write as _},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use holdfast_browser::{
    Browser as Windows, Config, Error, NavigationRule, Page, PointerAction, Tab,
};
use holdfast_egress::{Guard, Lookup, SystemResolver};
use holdfast_types::Effect;
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::{
    AllowedHosts, Call, Destination, GuardedHosts, Output, Part, Tool, ToolError, untrusted,
    web::Web,
};

/// Maximum length of the page text that the model gets, in characters.
const MAX_SHOWN_CHARS: usize = 30_000;

/// Maximum time to wait for a text.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Drive a web browser: go to pages, read them, click, fill in forms. For reading alone,
/// `web_fetch` is quicker.
///
/// Begin with `navigate`. A snapshot lists what is on the page; its refs, as `e12`, say which
/// element is meant.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BrowserInput {
    action: Action,
    /// Where to go, for `navigate`.
    #[serde(default)]
    url: Option<String>,
    /// The element.
    #[serde(default, rename = "ref")]
    element: Option<String>,
    /// The element that it is dragged to, or the tab for `tab` and `close_tab`.
    #[serde(default)]
    to: Option<String>,
    /// What to `type`, `fill` in, or `wait` for.
    #[serde(default)]
    text: Option<String>,
    /// What to `press`, as `Enter` or `Control+a`.
    #[serde(default)]
    key: Option<String>,
    /// What to choose, for `selectOption`.
    #[serde(default)]
    values: Vec<String>,
    /// JavaScript, for `evaluate`.
    #[serde(default)]
    expression: Option<String>,
    /// Pixels to `scroll` down; 600 if it is not said.
    #[serde(default)]
    by: Option<i32>,
    /// Seconds to `wait`, at most 30.
    #[serde(default)]
    seconds: Option<u64>,
    /// The whole page, for `screenshot`.
    #[serde(default)]
    whole: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
enum Action {
    Navigate,
    Snapshot,
    Click,
    DoubleClick,
    Type,
    Press,
    Drag,
    Hover,
    Fill,
    SelectOption,
    Check,
    Uncheck,
    Focus,
    Blur,
    Wait,
    Scroll,
    Screenshot,
    Evaluate,
    Tabs,
    Tab,
    #[serde(alias = "close_tab")]
    CloseTab,
    Close,
}

impl Action {
    /// Whether the page gets something that the model chose: a text, a script, or an element whose
    /// handlers run. Addresses are judged apart.
    const fn acts(self) -> bool {
        match self {
            Self::Click
            | Self::DoubleClick
            | Self::Type
            | Self::Press
            | Self::Drag
            | Self::Hover
            | Self::Fill
            | Self::SelectOption
            | Self::Check
            | Self::Uncheck
            | Self::Focus
            | Self::Blur
            | Self::Evaluate => true,
            Self::Navigate
            | Self::Snapshot
            | Self::Wait
            | Self::Scroll
            | Self::Screenshot
            | Self::Tabs
            | Self::Tab
            | Self::CloseTab
            | Self::Close => false,
        }
    }
}

#[derive(Debug)]
pub struct Browser {
    windows: Windows,
    guard: Guard,
    losses: Arc<dyn LostWindows>,
}

/// Future of the reason why something is lost.
pub type ReasonFuture<'a> = Pin<Box<dyn Future<Output = Option<String>> + Send + 'a>>;

/// Tells why a conversation's window was lost, if it was.
pub trait LostWindows: fmt::Debug + Send + Sync {
    fn reason<'a>(&'a self, call: &'a Call) -> ReasonFuture<'a>;
}

impl Browser {
    /// Builds the browser, limited to addresses that may be fetched; `None` if none is configured.
    ///
    /// # Errors
    ///
    /// If this machine has no root certificates.
    pub fn configured(
        config: &Config,
        web: &Web,
        losses: Arc<dyn LostWindows>,
    ) -> anyhow::Result<Option<Self>> {
        if !config.is_there() {
            return Ok(None);
        }
        Self::with(config.clone(), web, Arc::new(SystemResolver), losses).map(Some)
    }

    fn with(
        config: Config,
        web: &Web,
        lookup: Arc<dyn Lookup>,
        losses: Arc<dyn LostWindows>,
    ) -> anyhow::Result<Self> {
        let guard = Guard::new(web.allow.clone(), lookup)?;
        let rules = GuardedHosts::new(guard.clone(), AllowedHosts::default());
        let windows = Windows::new(config, Arc::new(rules));
        Ok(Self { windows, guard, losses })
    }

    /// The windows of conversations.
    #[must_use]
    pub fn windows(&self) -> Windows {
        self.windows.clone()
    }

    async fn act(&self, call: &Call, input: &BrowserInput) -> Result<Output, Error> {
        let (tenant, who) = (call.tenant.as_uuid(), call.session.as_uuid());
        if input.action == Action::Close {
            self.windows.close(who).await;
            return Ok("The window was closed.".into());
        }
        // Wrong input is refused before a window is opened.
        let url = match input.action {
            Action::Navigate => Some(self.address(required("url", input.url.as_deref())?)?),
            _ => None,
        };
        let (page, is_new) = self.windows.page(tenant, who).await?;
        if is_new && url.is_none() {
            return Err(Error::Refused(match self.losses.reason(call).await {
                Some(reason) => format!(
                    "the window that was open here is lost with its pages, because {reason}: \
                     `navigate` again"
                ),
                None => "the window is empty, as it is at first and after a while without use: \
                         `navigate` first"
                    .to_owned(),
            }));
        }
        if input.action.acts() {
            // Such an action has an approval of its own, if it needs one.
            page.release();
        }
        match input.action {
            Action::Screenshot => return screenshot(&page, input).await,
            Action::Tabs => {
                return untrusted_output(call, &page, &tab_list(&page.tabs().await?)).await;
            }
            Action::Evaluate => {
                let expression = required("expression", input.expression.as_deref())?;
                let value = page.evaluate(expression).await?;
                return untrusted_output(call, &page, &value.to_string()).await;
            }
            Action::Tab => {
                let page =
                    self.windows.switch_tab(who, required("to", input.to.as_deref())?).await?;
                return page_output(call, &page).await;
            }
            Action::CloseTab => page.close_tab(required("to", input.to.as_deref())?).await?,
            Action::Navigate => {
                let url = url.as_deref().unwrap_or("about:blank");
                page.navigate(url, navigation_rule(&call.hosts)).await?;
            }
            _ => self::act(&page, input).await?,
        }
        let (page, _) = self.windows.page(tenant, who).await?;
        page_output(call, &page).await
    }

    /// Checks an address. Its host name is checked when the connection is made.
    fn address(&self, said: &str) -> Result<String, Error> {
        let refused =
            |refused: holdfast_egress::AddressRefusal| Error::Refused(refused.to_string());
        let url = Guard::parse(said).map_err(refused)?;
        self.guard.client(&url).map_err(refused)?;
        Ok(url.to_string())
    }
}

/// Rule for the addresses that a navigation leads to, if it may not lead everywhere: what the model wrote
/// into an address goes to no other host.
fn navigation_rule(hosts: &AllowedHosts) -> Option<NavigationRule> {
    let hosts = hosts.clone();
    hosts.keep_to_one().then(|| -> NavigationRule {
        Arc::new(move |address: &str| {
            let url = Url::parse(address).map_err(|error| error.to_string())?;
            hosts.check(&url)
        })
    })
}

async fn act(page: &Page, input: &BrowserInput) -> Result<(), Error> {
    let element = || required("ref", input.element.as_deref());
    let some_element = input.element.as_deref().filter(|element| !element.is_empty());
    let text = || input.text.as_deref().ok_or_else(|| missing("text"));
    match input.action {
        Action::Click => page.point(element()?, PointerAction::Click).await,
        Action::DoubleClick => page.point(element()?, PointerAction::DoubleClick).await,
        Action::Hover => page.point(element()?, PointerAction::Hover).await,
        Action::Drag => page.drag(element()?, required("to", input.to.as_deref())?).await,
        Action::Type => page.write(some_element, text()?).await,
        Action::Press => page.press(some_element, required("key", input.key.as_deref())?).await,
        Action::Fill => page.fill(element()?, text()?).await,
        Action::SelectOption if input.values.is_empty() => Err(missing("values")),
        Action::SelectOption => page.select(element()?, &input.values).await,
        Action::Check => page.set_checked(element()?, true).await,
        Action::Uncheck => page.set_checked(element()?, false).await,
        Action::Focus => page.focus(element()?).await,
        Action::Blur => page.blur(element()?).await,
        Action::Scroll => page.scroll(some_element, (0, input.by.unwrap_or(600))).await,
        Action::Wait => {
            let limit = Duration::from_secs(input.seconds.unwrap_or(10)).min(MAX_WAIT);
            page.wait(input.text.as_deref().filter(|text| !text.is_empty()), limit).await
        }
        Action::Navigate
        | Action::Snapshot
        | Action::Screenshot
        | Action::Evaluate
        | Action::Tabs
        | Action::Tab
        | Action::CloseTab
        | Action::Close => Ok(()),
    }
}

/// Output with the current page.
async fn page_output(call: &Call, page: &Page) -> Result<Output, Error> {
    let (url, title) = page.location().await?;
    let mut text = format!("Title: {title}\nAddress: {url}\n\n{}", page.snapshot().await?);
    let tabs = page.tabs().await?;
    if tabs.len() > 1 {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "\nTabs:\n{}", tab_list(&tabs));
    }
    untrusted_output(call, page, &text).await
}

/// Output with text of the page, marked as untrusted.
async fn untrusted_output(call: &Call, page: &Page, text: &str) -> Result<Output, Error> {
    let (url, _) = page.location().await?;
    Ok(Output::from(untrusted(&call.key, &url, text, MAX_SHOWN_CHARS))
        .record(json!({ "url": url })))
}

async fn screenshot(page: &Page, input: &BrowserInput) -> Result<Output, Error> {
    let shot = page.screenshot(input.whole).await?;
    let (url, _) = page.location().await?;
    let told = format!("A picture of the page was taken, {} bytes.", shot.data.len());
    let image = Part::Image { media_type: shot.media_type.to_owned(), data: shot.data };
    Ok(Output::from(told).with(image).record(json!({ "url": url })))
}

/// Origin of a page's address; of a page without an origin, such as `about:blank`, its scheme.
fn site(address: &str) -> String {
    match Url::parse(address) {
        Ok(url) if url.origin().is_tuple() => url.origin().ascii_serialization(),
        Ok(url) => format!("{}:", url.scheme()),
        Err(_) => "an unknown site".to_owned(),
    }
}

fn tab_list(tabs: &[Tab]) -> String {
    tabs.iter().fold(String::new(), |mut text, tab| {
        let here = if tab.is_current { " (looked at)" } else { "" };
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "- {}: {} {}{here}", tab.id, tab.title, tab.url);
        text
    })
}

fn required<'a>(field: &str, given: Option<&'a str>) -> Result<&'a str, Error> {
    given.map(str::trim).filter(|given| !given.is_empty()).ok_or_else(|| missing(field))
}

fn missing(field: &str) -> Error {
    Error::Refused(format!("`{field}` is missing"))
}

impl Tool<Output> for Browser {
    const NAME: &'static str = "browser";
    const EFFECT: Effect = Effect::Acts;
    // A page has limits of its own; this one covers all waiting within one action.
    const TIMEOUT: Option<Duration> = Some(Duration::from_secs(90));
    type Input = BrowserInput;

    async fn destination(
        &self,
        call: &Call,
        input: &BrowserInput,
    ) -> Result<Option<Destination>, ToolError> {
        if !input.action.acts() {
            return Ok(None);
        }
        let page = match self.windows.current_address(call.session.as_uuid()).await {
            // Another call of the step may open a page before this one is made.
            Ok(None) => "no site yet".to_owned(),
            Ok(Some(address)) => site(&address),
            Err(_) => "an unknown site".to_owned(),
        };
        // A script reaches any host, whatever page it runs in.
        let covers_all = input.action != Action::Evaluate;
        Ok(Some(Destination { name: format!("actions on pages of {page}"), covers_all }))
    }

    async fn call(&self, call: Call, input: BrowserInput) -> Result<Output, ToolError> {
        // A page loads from any host, and all conversations share the proxy.
        if call.hosts.are_restricted() {
            return Err(ToolError::Tell(
                "the policy lists the hosts that you may reach: `web_fetch` reads them".to_owned(),
            ));
        }
        self.act(&call, &input).await.map_err(|error| {
            // The text of an error in a page comes from the page's author.
            let told = crate::untrusted::one_line(&error.to_string());
            ToolError::Tell(told.chars().take(600).collect())
        })
    }
}

#[cfg(test)]
mod tests;
