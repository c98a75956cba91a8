/** Distance of a popover from its anchor and from the edge of the window, in pixels. */
const GAP = 4;

/** Moves a popover that is shown below its anchor, or above where there is no room below. */
export function placeAtAnchor(popover: HTMLElement, anchor: HTMLElement, align: 'left' | 'right') {
  const [place, own] = [anchor.getBoundingClientRect(), popover.getBoundingClientRect()];
  const isBelow = place.bottom + GAP + own.height < innerHeight || place.top < own.height;
  const top = isBelow ? place.bottom + GAP : place.top - GAP - own.height;
  const left = align === 'left' ? place.left : place.right - own.width;
  popover.style.top = `${Math.max(GAP, Math.min(top, innerHeight - own.height - GAP))}px`;
  popover.style.left = `${Math.max(GAP, Math.min(left, innerWidth - own.width - GAP))}px`;
}
