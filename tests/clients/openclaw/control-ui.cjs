// Opens OpenClaw's Control UI in Chromium, chats with streaming, and visits its pages.

const { chromium } = require("playwright-core");

const { CONTROL_UI, KEY, CHROMIUM, SCREENS } = process.env;
const PAGES = ["sessions", "cron", "agents", "usage", "channels", "skills", "nodes", "config", "logs"];

async function main() {
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  const refused = [];
  page.on("websocket", (socket) => {
    const asked = new Map();
    socket.on("framesent", ({ payload }) => {
      const frame = JSON.parse(payload);
      if (frame.type === "req") asked.set(frame.id, frame.method);
    });
    socket.on("framereceived", ({ payload }) => {
      const frame = JSON.parse(payload);
      if (frame.type === "res" && !frame.ok) {
        refused.push(`${asked.get(frame.id)}: ${frame.error.code} ${frame.error.message}`);
      }
    });
  });
  page.on("pageerror", (error) => console.log("page error:", error.message));
  const screen = (name) => page.screenshot({ path: `${SCREENS}/control-ui-${name}.png` });

  try {
    await page.goto(`${CONTROL_UI}/chat#token=${encodeURIComponent(KEY)}`);
    const box = page.locator("textarea:visible").first();
    await box.waitFor({ timeout: 60000 });
    await screen("connected");
    const text = `this is the Control UI at ${Date.now()}`;
    await box.fill(text);
    await box.press("Enter");
    // The demonstration model repeats what it is told.
    await page.getByText(`You said: "${text}"`).first().waitFor({ timeout: 60000 });
    await page.waitForTimeout(3000);
    await screen("chat");
    for (const name of PAGES) {
      await page.goto(`${CONTROL_UI}/${name}`);
      await page.waitForTimeout(2500);
      await screen(name);
    }
  } finally {
    await screen("end");
    await browser.close();
    console.log(refused.map((line) => `refused: ${line}`).join("\n"));
  }
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
