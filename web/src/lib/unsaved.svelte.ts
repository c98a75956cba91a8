// Asks before a page with unsaved text is left.
import { tick } from 'svelte';
import { guardLeaving } from './router.svelte';
import { t } from './unsaved-text';

/** Forms with unsaved text. */
const unsaved = new Set<object>();
let removeGuard: (() => void) | undefined;

const warn = (event: BeforeUnloadEvent) => event.preventDefault();

function update() {
  const isGuarded = removeGuard !== undefined;
  if (unsaved.size > 0 && !isGuarded) {
    removeGuard = guardLeaving(() => window.confirm(t('leave')));
    addEventListener('beforeunload', warn);
  } else if (unsaved.size === 0 && isGuarded) {
    removeGuard?.();
    removeGuard = undefined;
    removeEventListener('beforeunload', warn);
  }
}

/** Asks while `isUnsaved` and the component lives. Only while a component is made. */
export function guardUnsaved(isUnsaved: () => boolean) {
  const own = {};
  $effect(() => {
    if (!isUnsaved()) return undefined;
    unsaved.add(own);
    update();
    return () => {
      unsaved.delete(own);
      update();
    };
  });
}

/** Tells whether a form has changed and is not saved. Only while a component is made. */
export function watchForm(form: object) {
  const opened = JSON.stringify(form);
  let isSaved = $state(false);
  const areUnsaved = $derived(!isSaved && JSON.stringify(form) !== opened);
  return {
    get areUnsaved() {
      return areUnsaved;
    },
    /** Leaving asks no question from now on. */
    async saved() {
      isSaved = true;
      await tick();
    },
  };
}
