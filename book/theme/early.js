// Values that mdBook's own scripts read, and the theme: set before the page is drawn, so that it does not
// flash. mdBook's template has these as inline scripts, which the gateway's content security policy
// refuses. A `const` of a script is seen by the scripts after it.
/* eslint-disable no-unused-vars */
const html = document.documentElement;
const path_to_root = html.dataset.root;
window.path_to_searchindex_js = html.dataset.searchIndex;

function stored(name) {
    try {
        return localStorage.getItem(name);
    } catch {
        return null; // Storage is blocked: the defaults are used.
    }
}

// Without a choice in the book, that in the web console counts, which is at the same origin.
const console_theme = { light: html.dataset.light, dark: html.dataset.dark }[stored('holdfast.theme')];
const default_light_theme = console_theme ?? html.dataset.light;
const default_dark_theme = console_theme ?? html.dataset.dark;
const default_theme = matchMedia('(prefers-color-scheme: dark)').matches ? default_dark_theme : default_light_theme;
html.classList.remove(html.dataset.light);
html.classList.add(stored('mdbook-theme') ?? default_theme, 'js');
