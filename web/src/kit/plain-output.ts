// Output of programs as plain text.

/** Escape sequences of terminals: CSI (colours, cursor), OSC (titles, links), and single ones. */
const ESCAPES = /[\u001b\u009b](?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]{0,4096}(?:\u0007|\u001b\\)|[@-Z\\-_]|[()][0-9A-Za-z])|\u009b[0-?]*[ -/]*[@-~]/g;
const CONTROLS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g;

/** Text without colours and cursor moves. Of lines that a program wrote over, the last state stays. */
export function plainOutput(text: string): string {
  const plain = text.replace(ESCAPES, '').replaceAll('\r\n', '\n');
  const lines = plain.includes('\r') ? plain.split('\n').map((line) => line.replace(/\r+$/, '').split('\r').at(-1)).join('\n') : plain;
  return lines.replace(CONTROLS, '');
}
