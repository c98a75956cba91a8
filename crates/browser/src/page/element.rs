//! Actions on one element of a page.
//!
//! An element is named by its ref in a snapshot. Before a click, the element at that point is
//! checked: a ref of an earlier page may still resolve, and another element may cover it.

use serde_json::{Value, json};

use super::{Page, PointerAction, value_or_exception};
use crate::{Error, keys::Key};

impl Page {
    /// DOM node id that a ref names.
    fn node_id(&self, named: &str) -> Result<i64, Error> {
        let number = named.trim().strip_prefix('e').and_then(|number| number.parse().ok());
        number.ok_or_else(|| {
            let shown: String = named.chars().take(40).collect();
            Error::Refused(format!("`{shown}` is no ref: take one of a snapshot, as `e12`"))
        })
    }

    /// Calls a JavaScript function with the element as `this`.
    async fn call_on(&self, named: &str, function: &str, args: &[Value]) -> Result<Value, Error> {
        let node = json!({ "backendNodeId": self.node_id(named)? });
        let found = self
            .call("DOM.resolveNode", node)
            .await
            .map_err(|error| element_missing(named, error))?;
        let args: Vec<Value> = args.iter().map(|value| json!({ "value": value })).collect();
        let params = json!({
            "objectId": found["object"]["objectId"],
            "functionDeclaration": function,
            "arguments": args,
            "returnByValue": true,
            "awaitPromise": true,
            "userGesture": true,
        });
        value_or_exception(self.call("Runtime.callFunctionOn", params).await?)
    }

    /// Scrolls an element into view and returns its centre.
    async fn scroll_to_centre(&self, named: &str) -> Result<(f64, f64), Error> {
        let node = json!({ "backendNodeId": self.node_id(named)? });
        let seen = self.call("DOM.scrollIntoViewIfNeeded", node.clone()).await;
        seen.map_err(|error| element_missing(named, error))?;
        let quads = self.call("DOM.getContentQuads", node).await;
        let quads = quads.map_err(|error| element_missing(named, error))?;
        let corners: Vec<f64> =
            quads["quads"][0].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        let [x1, y1, x2, y2, x3, y3, x4, y4] = corners[..] else {
            return Err(Error::Refused(format!("`{named}` is not to be seen")));
        };
        Ok(((x1 + x2 + x3 + x4) / 4.0, (y1 + y2 + y3 + y4) / 4.0))
    }

    async fn dispatch_pointer(
        &self,
        kind: &str,
        (x, y): (f64, f64),
        is_held: bool,
        count: u32,
    ) -> Result<(), Error> {
        let button = if is_held || kind != "mouseMoved" { "left" } else { "none" };
        let params = json!({
            "type": kind, "x": x, "y": y, "button": button, "buttons": u8::from(is_held),
            "clickCount": count,
        });
        self.call("Input.dispatchMouseEvent", params).await.map(drop)
    }

    /// Returns the centre of an element, if a click there would hit that element and not another
    /// one that covers it.
    async fn click_point(&self, named: &str) -> Result<(f64, f64), Error> {
        const IS_HIT: &str = "function(other) {
            const label = this.closest('label');
            return this.contains(other) || other.contains(this) ||
                (label !== null && label.contains(other));
        }";
        let (x, y) = self.scroll_to_centre(named).await?;
        let at = json!({ "x": round(x), "y": round(y), "includeUserAgentShadowDOM": false });
        let hit = self.call("DOM.getNodeForLocation", at).await;
        let hit = hit.map_err(|error| element_missing(named, error))?;
        let object = async |node: Value| {
            let params = json!({ "backendNodeId": node });
            let found = self.call("DOM.resolveNode", params).await;
            found.map(|mut found| found["object"]["objectId"].take())
        };
        let own = object(json!(self.node_id(named)?))
            .await
            .map_err(|error| element_missing(named, error))?;
        let hit = object(hit["backendNodeId"].clone())
            .await
            .map_err(|error| element_missing(named, error))?;
        let params = json!({
            "objectId": own, "functionDeclaration": IS_HIT, "returnByValue": true,
            "arguments": [{ "objectId": hit }],
        });
        let is_hit = self.call("Runtime.callFunctionOn", params).await.and_then(value_or_exception);
        match is_hit.map_err(|error| element_missing(named, error))? {
            Value::Bool(true) => Ok((x, y)),
            _ => Err(Error::Refused(format!(
                "`{named}` is behind something else, which would get the click: take a new \
                 snapshot, and close what lies above it"
            ))),
        }
    }

    /// Clicks an element, or moves the pointer over it.
    ///
    /// # Errors
    ///
    /// If the element is not there, not visible, or covered.
    pub async fn point(&self, named: &str, pointer: PointerAction) -> Result<(), Error> {
        let at = self.click_point(named).await?;
        self.dispatch_pointer("mouseMoved", at, false, 0).await?;
        let times = match pointer {
            PointerAction::Hover => 0,
            PointerAction::Click => 1,
            PointerAction::DoubleClick => 2,
        };
        for count in 1..=times {
            self.dispatch_pointer("mousePressed", at, true, count).await?;
            self.dispatch_pointer("mouseReleased", at, false, count).await?;
        }
        self.settle().await
    }

    /// Drags one element onto another.
    ///
    /// # Errors
    ///
    /// If an element is not there or not visible, or the first one is covered.
    pub async fn drag(&self, named: &str, to: &str) -> Result<(), Error> {
        let from = self.click_point(named).await?;
        self.dispatch_pointer("mouseMoved", from, false, 0).await?;
        self.dispatch_pointer("mousePressed", from, true, 1).await?;
        let to = self.scroll_to_centre(to).await?;
        let half = (f64::midpoint(from.0, to.0), f64::midpoint(from.1, to.1));
        for at in [half, to] {
            self.dispatch_pointer("mouseMoved", at, true, 1).await?;
        }
        self.dispatch_pointer("mouseReleased", to, false, 1).await?;
        self.settle().await
    }

    /// Types text into an element, or where the focus is.
    ///
    /// # Errors
    ///
    /// If the element is not there.
    pub async fn write(&self, named: Option<&str>, text: &str) -> Result<(), Error> {
        if let Some(named) = named {
            self.focus(named).await?;
        }
        self.call("Input.insertText", json!({ "text": text })).await?;
        self.settle().await
    }

    /// Presses a key, such as `Enter` or `Control+a`.
    ///
    /// # Errors
    ///
    /// If the key is unknown, or the element is not there.
    pub async fn press(&self, named: Option<&str>, key: &str) -> Result<(), Error> {
        let Some(key) = Key::parse(key) else {
            let shown: String = key.chars().take(40).collect();
            return Err(Error::Refused(format!(
                "`{shown}` is no key: write `Enter`, `Tab`, `ArrowDown`, a letter, or `Control+a`"
            )));
        };
        if let Some(named) = named {
            self.focus(named).await?;
        }
        for event in key.events() {
            self.call("Input.dispatchKeyEvent", event).await?;
        }
        self.settle().await
    }

    /// Replaces the content of a field.
    ///
    /// # Errors
    ///
    /// If the element is not there, or is no field.
    pub async fn fill(&self, named: &str, text: &str) -> Result<(), Error> {
        const FILL: &str = "function(text) {
            if (this.isContentEditable) { this.focus(); this.textContent = text; }
            else if ('value' in this && !this.readOnly && !this.disabled) {
                this.focus();
                const own = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(this), 'value');
                own && own.set ? own.set.call(this, text) : this.value = text;
            } else { throw new Error('it is no field that can be filled'); }
            this.dispatchEvent(new InputEvent('input', {bubbles: true, data: text}));
            this.dispatchEvent(new Event('change', {bubbles: true}));
        }";
        self.call_on(named, FILL, &[json!(text)]).await?;
        self.settle().await
    }

    /// Selects options of a list by value or text.
    ///
    /// # Errors
    ///
    /// If the element is not there, is no list, or has no such option.
    pub async fn select(&self, named: &str, values: &[String]) -> Result<(), Error> {
        const SELECT: &str = "function(wanted) {
            const list = this.tagName === 'OPTION' ? this.closest('select') : this;
            if (!list || list.tagName !== 'SELECT') throw new Error('it is no list to choose from');
            const options = [...list.options];
            const fits = (option, one) => option.value === one || option.text.trim() === one.trim();
            for (const one of wanted) {
                if (!options.some(option => fits(option, one))) {
                    throw new Error('it has no option `' + one + '`; it has: ' +
                        options.slice(0, 30).map(option => option.text.trim()).join(', '));
                }
            }
            const chosen = list.multiple ? wanted : wanted.slice(0, 1);
            options.forEach(option => {
                option.selected = chosen.some(one => fits(option, one));
            });
            list.dispatchEvent(new Event('input', {bubbles: true}));
            list.dispatchEvent(new Event('change', {bubbles: true}));
        }";
        self.call_on(named, SELECT, &[json!(values)]).await?;
        self.settle().await
    }

    /// Checks or unchecks a checkbox.
    ///
    /// # Errors
    ///
    /// If the element is not there, or cannot be checked.
    pub async fn set_checked(&self, named: &str, checked: bool) -> Result<(), Error> {
        const STATE: &str = "function() {
            if ('checked' in this) return this.checked;
            const said = this.getAttribute('aria-checked');
            if (said === null) throw new Error('it is nothing that can be checked');
            return said === 'true';
        }";
        if self.call_on(named, STATE, &[]).await? != checked {
            self.point(named, PointerAction::Click).await?;
            if self.call_on(named, STATE, &[]).await? != checked {
                return Err(Error::Refused(format!("`{named}` was clicked and stayed as it was")));
            }
        }
        Ok(())
    }

    /// Gives an element the focus.
    ///
    /// # Errors
    ///
    /// If the element is not there, or cannot be focused.
    pub async fn focus(&self, named: &str) -> Result<(), Error> {
        let node = json!({ "backendNodeId": self.node_id(named)? });
        self.call("DOM.focus", node).await.map(drop).map_err(|error| element_missing(named, error))
    }

    /// Takes the focus from an element.
    ///
    /// # Errors
    ///
    /// If the element is not there.
    pub async fn blur(&self, named: &str) -> Result<(), Error> {
        self.call_on(named, "function() { this.blur(); }", &[]).await.map(drop)
    }

    /// Scrolls the page by a number of pixels, or until an element is visible.
    ///
    /// # Errors
    ///
    /// If the element is not there.
    pub async fn scroll(&self, named: Option<&str>, (x, y): (i32, i32)) -> Result<(), Error> {
        match named {
            Some(named) => self.scroll_to_centre(named).await.map(drop),
            None => self.evaluate(&format!("window.scrollBy({x}, {y})")).await.map(drop),
        }
    }
}

/// Rounds a coordinate to whole pixels.
fn round(place: f64) -> i64 {
    format!("{place:.0}").parse().unwrap_or(0)
}

/// Adds to a refusal that the element is not there.
fn element_missing(named: &str, error: Error) -> Error {
    match error {
        Error::Refused(why) => {
            Error::Refused(format!("`{named}` is not there ({why}): take a new snapshot"))
        }
        error => error,
    }
}
