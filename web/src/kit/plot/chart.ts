// Drawing of a plot by uPlot. Loaded when the first plot is shown.
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { toDate, type Moment } from '$lib/format';
import { dashOf, hatchOf, isTimes, type Series } from './series';

export type ChartOptions = {
  series: (Series & { stroke: string })[];
  x: readonly Moment[] | readonly string[];
  /** Texts of `x`. */
  names: string[];
  kind: 'line' | 'bars';
  width: number;
  height: number;
  format: (value: number) => string;
  locale: string;
  onpoint: (point: { index: number; left: number } | undefined) => void;
};

export type Chart = {
  resize(width: number, height: number): void;
  /** Marks a point as if the pointer were there. */
  point(index: number): void;
  leave(): void;
  destroy(): void;
};

type Data = (number | null)[];

export function createChart(element: HTMLElement, options: ChartOptions): Chart {
  const { series, kind, x, names, onpoint } = options;
  const hasTimes = isTimes(x);
  // Bars stand at equal distances; lines at their times.
  const positions = x.map((moment, index) => (hasTimes && kind === 'line' ? toDate(moment)!.getTime() / 1000 : index));
  const drawn = kind === 'bars' ? stacked(series.map(({ values }) => values)) : series.map(({ values }) => [...values]);
  const order = series.map((_, index) => index);
  // The highest sum is drawn first, and the lower ones over it.
  if (kind === 'bars') order.reverse();

  const chart = new uPlot(
    {
      width: options.width,
      height: options.height,
      legend: { show: false },
      cursor: { drag: { setScale: false }, y: false, points: { show: kind === 'line' } },
      scales: {
        x: { time: hasTimes && kind === 'line', ...(kind === 'bars' || !hasTimes ? { range: [-0.6, positions.length - 0.4] } : {}) },
        y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high ?? 0) > 0 ? high * 1.08 : 1] },
      },
      axes: [xAxis(element, options, hasTimes), yAxis(element, options)],
      series: [{}, ...order.map((index) => seriesOptions(element, options, index))],
      hooks: {
        setCursor: [
          (self) => {
            const index = self.cursor.idx;
            const isInside = index !== null && index !== undefined && (self.cursor.left ?? -1) >= 0 && index < names.length;
            onpoint(isInside ? { index, left: leftOf(self, index) } : undefined);
          },
        ],
      },
    },
    [positions, ...order.map((index) => drawn[index]!)] as uPlot.AlignedData,
    element,
  );

  function leftOf(self: uPlot, index: number): number {
    return self.valToPos(positions[index]!, 'x') + self.over.offsetLeft;
  }

  return {
    resize: (width, height) => {
      if (width !== chart.width || height !== chart.height) chart.setSize({ width, height });
    },
    point: (index) => chart.setCursor({ left: chart.valToPos(positions[index]!, 'x'), top: 0 }),
    leave: () => chart.setCursor({ left: -10, top: -10 }),
    destroy: () => chart.destroy(),
  };
}

function stacked(values: (readonly (number | null)[])[]): Data[] {
  const sums: number[] = [];
  return values.map((series) => series.map((value, index) => (sums[index] = (sums[index] ?? 0) + (value ?? 0))));
}

const variable = (element: HTMLElement, name: string) => getComputedStyle(element).getPropertyValue(name).trim();

function axis(element: HTMLElement): uPlot.Axis {
  const line = variable(element, '--border');
  return {
    stroke: variable(element, '--text-2'),
    font: '12px system-ui, sans-serif',
    grid: { stroke: line, width: 1 },
    ticks: { stroke: line, width: 1, size: 4 },
  };
}

function yAxis(element: HTMLElement, { format }: ChartOptions): uPlot.Axis {
  return {
    ...axis(element),
    values: (_, ticks) => ticks.map((tick) => format(tick)),
    // As wide as the longest text.
    size: (_, values) => 20 + Math.max(0, ...(values ?? []).map((text) => text.length)) * 7,
  };
}

function xAxis(element: HTMLElement, options: ChartOptions, hasTimes: boolean): uPlot.Axis {
  const { names, kind } = options;
  if (hasTimes && kind === 'line') {
    return {
      ...axis(element),
      space: 64,
      values: (_, ticks, __, ___, step) => ticks.map((tick) => tickText(tick, step, options.locale)),
    };
  }
  // Few names are all shown, cut to their place; of many only some.
  const place = Math.floor((options.width - 60) / names.length / 7) - 1;
  const isCut = names.length <= 12 && place >= 3;
  const longest = Math.min(isCut ? place : 16, Math.max(...names.map((name) => name.length)));
  const cut = (name: string) => (name.length > longest ? `${name.slice(0, longest - 1)}…` : name);
  return {
    ...axis(element),
    grid: { show: false },
    space: isCut ? 1 : 12 + longest * 6.5,
    incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000],
    values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? cut(names[tick] ?? '') : '')),
  };
}

function tickText(seconds: number, step: number, locale: string): string {
  const date = new Date(seconds * 1000);
  const isMidnight = date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0;
  if (step >= 86_400 || isMidnight) return date.toLocaleDateString(locale, { month: 'short', day: 'numeric' });
  const form: Intl.DateTimeFormatOptions = { hour: '2-digit', minute: '2-digit' };
  if (step < 60) form.second = '2-digit';
  return date.toLocaleTimeString(locale, form);
}

function seriesOptions(element: HTMLElement, { series, kind, x }: ChartOptions, index: number): uPlot.Series {
  const { label, stroke } = series[index]!;
  if (kind === 'bars') {
    return {
      label,
      stroke: variable(element, '--surface'),
      width: 1,
      fill: (self) => hatched(self.ctx, stroke, index, variable(element, '--surface')),
      paths: uPlot.paths.bars!({ size: [0.75, 64] }),
      points: { show: false },
    };
  }
  return { label, stroke, width: 2, dash: dashOf(index), spanGaps: false, points: { show: x.length < 3, size: 6, fill: stroke } };
}

function hatched(context: CanvasRenderingContext2D, color: string, index: number, line: string): CanvasPattern | string {
  const hatch = hatchOf(index);
  if (hatch.length === 0) return color;
  const scale = devicePixelRatio;
  const tile = new OffscreenCanvas(Math.round(8 * scale), Math.round(8 * scale));
  const brush = tile.getContext('2d');
  if (!brush) return color;
  brush.fillStyle = color;
  brush.fillRect(0, 0, tile.width, tile.height);
  brush.scale(scale, scale);
  brush.strokeStyle = line;
  brush.lineWidth = 1.5;
  for (const [fromX, fromY, toX, toY] of hatch) {
    brush.beginPath();
    brush.moveTo(fromX, fromY);
    brush.lineTo(toX, toY);
    brush.stroke();
  }
  return context.createPattern(tile, 'repeat') ?? color;
}
