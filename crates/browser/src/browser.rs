//! One browser with a separate window for each conversation.
//!
//! A window is a browser context: it shares no cookies, cache or storage with other windows, and
//! all of these are discarded when it is closed. Idle windows are closed. A conversation that
//! continues in another process starts with an empty window there.

use std::{
    collections::HashMap,
    fmt, io,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use holdfast_proxy::{ConnectRules, ListenerChannel, NAMESPACE_URL, Proxy};
use serde_json::json;
use tokio::{net::TcpListener, sync::Mutex};
use tracing::{debug, warn};
use uuid::Uuid;

use crate::{
    Config, Error, Isolation, Page,
    cdp::Cdp,
    launch::{BrowserProcess, ProxyAddress, connect},
    page::attach,
};

/// Maximum number of open connections of the browser; further ones are closed at once.
const MAX_CONNECTIONS: usize = 512;

/// Browser that is started, or connected to, on first use. Clones share it.
#[derive(Clone)]
pub struct Browser(Arc<Inner>);

struct Inner {
    config: Config,
    rules: Arc<dyn ConnectRules>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<BrowserConnection>,
    windows: HashMap<Uuid, Window>,
}

/// Connection to the running browser.
struct BrowserConnection {
    cdp: Arc<Cdp>,
    /// URL of the proxy that pages use.
    proxy_url: String,
    _proxy: Proxy,
    _running: Option<BrowserProcess>,
}

/// Window of one conversation.
#[derive(Debug, Clone)]
struct Window {
    context: String,
    /// Target id of the current tab.
    target: String,
    session: String,
    tenant: Uuid,
    used: Instant,
}

impl Browser {
    /// Pages may reach only what `rules` allow.
    #[must_use]
    pub fn new(config: Config, rules: Arc<dyn ConnectRules>) -> Self {
        Self(Arc::new(Inner { config, rules, state: Mutex::default() }))
    }

    /// Returns the window of a tenant's conversation, and `true` if it was created by this call.
    ///
    /// If all windows are in use, the tenant with the most loses the one that it used least
    /// recently, if it has more than a quarter of them and this tenant has less.
    ///
    /// # Errors
    ///
    /// If all windows are in use, or the browser cannot be reached.
    pub async fn page(&self, tenant: Uuid, who: Uuid) -> Result<(Page, bool), Error> {
        let mut state = self.0.state.lock().await;
        let (cdp, way_out) = self.connection(&mut state).await?;
        if let Some(window) = state.windows.get(&who).cloned() {
            if let Some(window) = revive(&cdp, window).await? {
                let page = page_of(&cdp, &window);
                state.windows.insert(who, window);
                return Ok((page, false));
            }
            state.windows.remove(&who);
        }
        close_idle(&cdp, &mut state.windows, self.0.config.idle).await;
        let most = self.0.config.most;
        if state.windows.len() >= most {
            let owners =
                state.windows.iter().map(|(who, window)| (*who, window.tenant, window.used));
            let victim = window_to_give_up(owners, tenant, most).ok_or(Error::Full(most))?;
            if let Some(window) = state.windows.remove(&victim) {
                dispose(&cdp, &window).await;
            }
        }
        let window = open(&cdp, &way_out, tenant).await?;
        let page = page_of(&cdp, &window);
        state.windows.insert(who, window);
        Ok((page, true))
    }

    /// Makes another tab of the window the current one.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if the conversation has no such tab, or no window.
    pub async fn switch_tab(&self, who: Uuid, target: &str) -> Result<Page, Error> {
        let mut state = self.0.state.lock().await;
        let (cdp, _) = self.connection(&mut state).await?;
        let missing = || Error::Refused("there is no such tab".to_owned());
        let window = state.windows.get_mut(&who).ok_or_else(missing)?;
        let page = page_of(&cdp, window);
        if !page.tabs().await?.iter().any(|tab| tab.id == target) {
            return Err(missing());
        }
        let session = attach(&cdp, target).await?;
        (window.target, window.session) = (target.to_owned(), session);
        Ok(page_of(&cdp, window))
    }

    /// Address of the page that the conversation looks at; `None` if it has no window.
    ///
    /// # Errors
    ///
    /// If the browser cannot be reached.
    pub async fn current_address(&self, who: Uuid) -> Result<Option<String>, Error> {
        let state = self.0.state.lock().await;
        let (Some(window), Some(link)) = (state.windows.get(&who), &state.connection) else {
            return Ok(None);
        };
        let tabs = page_of(&link.cdp, window).tabs().await?;
        // The next action uses the last tab if the current one was closed.
        let shown = tabs.iter().find(|tab| tab.is_current).or(tabs.last());
        Ok(shown.map(|tab| tab.url.clone()))
    }

    /// Whether a conversation has a window.
    pub async fn has_window(&self, who: Uuid) -> bool {
        self.0.state.lock().await.windows.contains_key(&who)
    }

    /// Closes a conversation's window. Does nothing if it has none.
    pub async fn close(&self, who: Uuid) {
        let mut state = self.0.state.lock().await;
        let window = state.windows.remove(&who);
        if let (Some(window), Some(link)) = (window, &state.connection) {
            dispose(&link.cdp, &window).await;
        }
    }

    /// Returns the connection and the proxy URL; starts or reconnects the browser if the connection
    /// ended.
    async fn connection(&self, state: &mut State) -> Result<(Arc<Cdp>, String), Error> {
        if let Some(link) = state.connection.as_ref().filter(|link| !link.cdp.is_closed()) {
            return Ok((Arc::clone(&link.cdp), link.proxy_url.clone()));
        }
        *state = State::default();
        let config = &self.0.config;
        let (proxy, address) = start_proxy(config, Arc::clone(&self.0.rules)).await?;
        let way_out = address.url.clone();
        let (cdp, running) = connect(config, address).await?;
        let cdp = Arc::new(cdp);
        let link = BrowserConnection {
            cdp: Arc::clone(&cdp),
            proxy_url: way_out.clone(),
            _proxy: proxy,
            _running: running,
        };
        state.connection = Some(link);
        tokio::spawn(tidy(Arc::downgrade(&self.0), Arc::downgrade(&cdp)));
        Ok((cdp, way_out))
    }
}

impl fmt::Debug for Browser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Browser").field("config", &self.0.config).finish_non_exhaustive()
    }
}

/// Starts the proxy: in the browser's own namespace if it is isolated, else on this machine.
async fn start_proxy(
    config: &Config,
    rules: Arc<dyn ConnectRules>,
) -> Result<(Proxy, ProxyAddress), Error> {
    if config.url.is_none() && config.isolation == Isolation::Bubblewrap {
        let failed =
            |error: io::Error| Error::Unavailable(format!("it can have no network: {error}"));
        let (near, channel) =
            ListenerChannel::open(config.listener_program.as_deref()).map_err(failed)?;
        let proxy = Proxy::start_in_namespace(near, rules, MAX_CONNECTIONS);
        return Ok((proxy, ProxyAddress { url: NAMESPACE_URL.to_owned(), channel: Some(channel) }));
    }
    if config.url.is_none() {
        warn!("the browser runs without isolation: it can reach what this process can");
    }
    let failed = |error| {
        Error::Unavailable(format!("its way out cannot listen on {}: {error}", config.listen))
    };
    let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
    let url = match config.proxy.as_str() {
        "" => format!("http://{}", listener.local_addr().map_err(failed)?),
        given => given.to_owned(),
    };
    let proxy = Proxy::start(listener, rules, MAX_CONNECTIONS);
    Ok((proxy, ProxyAddress { url, channel: None }))
}

fn page_of(cdp: &Arc<Cdp>, window: &Window) -> Page {
    let (context, target) = (window.context.clone(), window.target.clone());
    Page::new(Arc::clone(cdp), context, target, window.session.clone())
}

/// Chooses the window that makes room for one of `tenant`, among windows with their tenants and the
/// time of their last use. `None` if no other tenant has more than its share.
fn window_to_give_up(
    windows: impl Iterator<Item = (Uuid, Uuid, Instant)>,
    tenant: Uuid,
    most: usize,
) -> Option<Uuid> {
    let share = (most / 4).max(1);
    let mut by_tenant: HashMap<Uuid, Vec<(Instant, Uuid)>> = HashMap::new();
    for (who, owner, used) in windows {
        by_tenant.entry(owner).or_default().push((used, who));
    }
    if by_tenant.get(&tenant).is_some_and(|own| own.len() >= share) {
        return None;
    }
    let largest = by_tenant.into_values().max_by_key(Vec::len)?;
    let oldest = largest.iter().min().map(|(_, who)| *who);
    oldest.filter(|_| largest.len() > share)
}

async fn open(cdp: &Cdp, way_out: &str, tenant: Uuid) -> Result<Window, Error> {
    let params = json!({
        "disposeOnDetach": true,
        "proxyServer": way_out,
        // By default Chromium bypasses the proxy for loopback addresses.
        "proxyBypassList": "<-loopback>",
    });
    let made = cdp.call(None, "Target.createBrowserContext", params).await?;
    let context = made["browserContextId"].as_str().unwrap_or_default().to_owned();
    let no_files = json!({ "behavior": "deny", "browserContextId": context });
    cdp.call(None, "Browser.setDownloadBehavior", no_files).await?;
    let (target, session) = new_tab(cdp, &context).await?;
    Ok(Window { context, target, session, tenant, used: Instant::now() })
}

async fn new_tab(cdp: &Cdp, context: &str) -> Result<(String, String), Error> {
    let blank = json!({ "url": "about:blank", "browserContextId": context });
    let made = cdp.call(None, "Target.createTarget", blank).await?;
    let target = made["targetId"].as_str().unwrap_or_default().to_owned();
    let session = attach(cdp, &target).await?;
    Ok((target, session))
}

/// Marks the window as used, and replaces its current tab if that was closed. Returns `None` if the
/// window is gone.
async fn revive(cdp: &Arc<Cdp>, mut window: Window) -> Result<Option<Window>, Error> {
    window.used = Instant::now();
    let tabs = page_of(cdp, &window).tabs().await?;
    if tabs.iter().any(|tab| tab.is_current) {
        return Ok(Some(window));
    }
    let opened = match tabs.last() {
        Some(tab) => attach(cdp, &tab.id).await.map(|session| (tab.id.clone(), session)),
        None => new_tab(cdp, &window.context).await,
    };
    match opened {
        Ok((target, session)) => Ok(Some(Window { target, session, ..window })),
        Err(Error::Refused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn dispose(cdp: &Cdp, window: &Window) {
    let params = json!({ "browserContextId": window.context });
    if let Err(error) = cdp.call(None, "Target.disposeBrowserContext", params).await {
        debug!(error = &error as &dyn std::error::Error, "a window was not closed");
    }
}

async fn close_idle(cdp: &Cdp, windows: &mut HashMap<Uuid, Window>, idle: Duration) {
    let late: Vec<Uuid> = windows
        .iter()
        .filter(|(_, window)| window.used.elapsed() >= idle)
        .map(|(who, _)| *who)
        .collect();
    for who in late {
        if let Some(window) = windows.remove(&who) {
            dispose(cdp, &window).await;
        }
    }
}

/// Closes idle windows until this connection to the browser ends.
async fn tidy(inner: Weak<Inner>, cdp: Weak<Cdp>) {
    loop {
        let Some(idle) = inner.upgrade().map(|inner| inner.config.idle) else { return };
        tokio::time::sleep((idle / 2).max(Duration::from_millis(100))).await;
        let (Some(inner), Some(cdp)) = (inner.upgrade(), cdp.upgrade()) else { return };
        let mut state = inner.state.lock().await;
        close_idle(&cdp, &mut state.windows, idle).await;
        if state.windows.is_empty() && inner.config.url.is_none() {
            // An unused browser costs memory; the next use starts it again.
            state.connection = None;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_with_many_windows_makes_room_for_one_with_few() {
        let [busy, new, other] = [1, 2, 3].map(Uuid::from_u128);
        let now = Instant::now();
        let windows = |owners: &[Uuid]| -> Vec<(Uuid, Uuid, Instant)> {
            let used = |at: u64| now + Duration::from_secs(at);
            let owners = owners.iter().zip(0_u64..);
            owners.map(|(owner, at)| (Uuid::from_u128(at.into()), *owner, used(at))).collect()
        };

        let all = windows(&[busy; 8]);
        assert_eq!(window_to_give_up(all.iter().copied(), new, 8), Some(Uuid::from_u128(0)));
        assert_eq!(window_to_give_up(all.into_iter(), busy, 8), None);

        let fair = windows(&[busy, busy, other, other]);
        assert_eq!(window_to_give_up(fair.into_iter(), new, 8), None);
        let used_up = windows(&[new, new, busy, busy, busy, busy, busy, busy]);
        assert_eq!(window_to_give_up(used_up.into_iter(), new, 8), None);
    }
}
