// CodeMirror with the look of the console. Loaded when the first editor is shown.
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { json } from '@codemirror/lang-json';
import { markdown } from '@codemirror/lang-markdown';
import { yaml, yamlFrontmatter } from '@codemirror/lang-yaml';
import { bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from '@codemirror/language';
import { highlightSelectionMatches, search, searchKeymap } from '@codemirror/search';
import { Compartment, EditorState, type Extension } from '@codemirror/state';
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { t } from '../data-text';

export type EditorOptions = {
  /** Shadow root: the styles of the editor are adopted sheets there, which a strict CSP permits. */
  root: ShadowRoot;
  value: string;
  path: string;
  isReadOnly: boolean;
  label: string;
  onchange: (value: string) => void;
  onsave: () => void;
};

export type Editor = {
  setValue(value: string): void;
  setPath(path: string): void;
  setReadOnly(isReadOnly: boolean): void;
  setLabel(label: string): void;
  focus(): void;
  destroy(): void;
};

const highlight = HighlightStyle.define([
  { tag: tags.heading, fontWeight: '700', color: 'var(--text)' },
  { tag: tags.strong, fontWeight: '700' },
  { tag: tags.emphasis, fontStyle: 'italic' },
  { tag: tags.strikethrough, textDecoration: 'line-through' },
  { tag: [tags.link, tags.url], color: 'var(--accent)', textDecoration: 'underline' },
  { tag: [tags.keyword, tags.bool, tags.null], color: 'var(--accent-strong)' },
  { tag: [tags.string, tags.special(tags.string)], color: 'var(--ok)' },
  { tag: [tags.number, tags.literal], color: 'var(--warn)' },
  { tag: [tags.propertyName, tags.definition(tags.propertyName), tags.attributeName], color: 'var(--info)' },
  { tag: [tags.comment, tags.meta, tags.processingInstruction], color: 'var(--text-3)' },
  { tag: tags.invalid, color: 'var(--bad)' },
]);

const look = EditorView.theme({
  '&': { height: '100%', color: 'var(--text)', backgroundColor: 'var(--surface)', fontSize: '13px' },
  '&.cm-focused': { outline: '2px solid var(--focus)', outlineOffset: '-2px' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.6' },
  '.cm-content': { caretColor: 'var(--text)' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '.cm-gutters': { backgroundColor: 'var(--surface)', color: 'var(--text-3)', borderRight: '1px solid var(--border)' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'var(--surface-hover)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': {
    backgroundColor: 'var(--accent-soft)',
  },
  '.cm-activeLine': { backgroundColor: 'color-mix(in srgb, var(--surface-hover) 60%, transparent)' },
  '.cm-searchMatch': { backgroundColor: 'var(--warn-soft)', outline: '1px solid var(--warn)' },
  '.cm-selectionMatch': { backgroundColor: 'var(--info-soft)' },
  '.cm-panels': { backgroundColor: 'var(--surface-2)', color: 'var(--text)' },
  '.cm-panel.cm-search': { padding: '6px 32px 6px 8px', fontSize: '13px' },
  '.cm-textfield': { backgroundColor: 'var(--surface)', border: '1px solid var(--border-strong)', minHeight: '26px' },
  '.cm-button': { backgroundColor: 'var(--surface)', backgroundImage: 'none', border: '1px solid var(--border-strong)', minHeight: '26px' },
  '.cm-panel.cm-search input, .cm-panel.cm-search button, .cm-panel.cm-search label': { fontSize: '13px' },
  '.cm-panel.cm-search [name=close]': { width: '26px', height: '26px', color: 'var(--text)' },
});

function languageOf(path: string): Extension {
  const name = path.toLowerCase();
  if (/\.(md|markdown)$/.test(name)) return yamlFrontmatter({ content: markdown() });
  if (/\.jsonl?$/.test(name)) return json();
  if (/\.ya?ml$/.test(name)) return yaml();
  return [];
}

const phrases = () => ({
  Find: t('find'), Replace: t('replace'), next: t('next'), previous: t('previous'), all: t('all'),
  'match case': t('matchCase'), 'by word': t('byWord'), regexp: t('regexp'), replace: t('replace'),
  'replace all': t('replaceAll'), close: t('close'),
});

/**
 * Replaces what is selected by typed text. A browser would give that text the look of the old one in an
 * attribute `style`, which the content security policy blocks.
 */
const replaceSelected = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { data, inputType } = event;
    if (inputType !== 'insertText' || data === null || !event.cancelable || view.composing) return false;
    if (view.state.readOnly || view.state.selection.main.empty) return false;
    event.preventDefault();
    view.dispatch(view.state.replaceSelection(data), { userEvent: 'input.type', scrollIntoView: true });
    return true;
  },
});

export function createEditor({ root, value, path, isReadOnly, label, onchange, onsave }: EditorOptions): Editor {
  const [languagePart, readOnlyPart, labelPart] = [new Compartment(), new Compartment(), new Compartment()];
  const readOnly = (on: boolean) => [EditorState.readOnly.of(on), EditorView.contentAttributes.of({ 'aria-readonly': String(on) })];
  const named = (name: string) => EditorView.contentAttributes.of({ 'aria-label': name, tabindex: '0' });
  let isOwnChange = false;
  const save = () => {
    onsave();
    return true;
  };
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: value,
      extensions: [
        lineNumbers(), history(), drawSelection(), indentOnInput(), bracketMatching(), highlightActiveLine(),
        highlightSelectionMatches(), search({ top: true }), indentUnit.of('  '), EditorView.lineWrapping,
        keymap.of([{ key: 'Mod-s', run: save, preventDefault: true }, ...searchKeymap, ...historyKeymap, ...defaultKeymap, indentWithTab]),
        syntaxHighlighting(highlight), look, replaceSelected, EditorState.phrases.of(phrases()),
        languagePart.of(languageOf(path)), readOnlyPart.of(readOnly(isReadOnly)), labelPart.of(named(label)),
        EditorView.updateListener.of((update) => {
          if (update.docChanged && !isOwnChange) onchange(update.state.doc.toString());
        }),
      ],
    }),
  });
  return {
    setValue(next) {
      if (next === view.state.doc.toString()) return;
      isOwnChange = true;
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next } });
      isOwnChange = false;
    },
    setPath: (next) => view.dispatch({ effects: languagePart.reconfigure(languageOf(next)) }),
    setReadOnly: (on) => view.dispatch({ effects: readOnlyPart.reconfigure(readOnly(on)) }),
    setLabel: (name) => view.dispatch({ effects: labelPart.reconfigure(named(name)) }),
    focus: () => view.focus(),
    destroy: () => view.destroy(),
  };
}
