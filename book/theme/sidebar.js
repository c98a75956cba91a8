// Shows or hides the sidebar before it is drawn: in a wide window as the reader left it, otherwise hidden.
// And makes what mdBook leaves to the mouse work with the keyboard.
(() => {
    const is_wide = document.body.clientWidth >= 1080;
    const is_visible = is_wide && stored('mdbook-sidebar') !== 'hidden';
    document.getElementById('mdbook-sidebar-toggle-anchor').checked = is_visible;
    html.classList.toggle('sidebar-visible', is_visible);
    document.addEventListener('DOMContentLoaded', () => {
        const toggle = document.getElementById('mdbook-sidebar-toggle');
        toggle.setAttribute('aria-expanded', is_visible);
        toggle.addEventListener('keydown', (event) => {
            if (event.key === 'Enter' || event.key === ' ') {
                event.preventDefault();
                toggle.click();
            }
        });
        document.getElementById('mdbook-sidebar').setAttribute('aria-hidden', !is_visible);
        for (const link of document.querySelectorAll('#mdbook-sidebar a')) {
            link.tabIndex = is_visible ? 0 : -1;
        }
        for (const region of document.querySelectorAll('.table-wrapper, pre > code')) {
            if (region.scrollWidth > region.clientWidth) {
                region.tabIndex = 0;
            }
        }
    });
})();
