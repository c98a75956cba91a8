// Tasks of somebody who gives agents skills and tools.
import { crc32 } from 'node:zlib';
import { Agents } from '../../src/api/gen/holdfast/gateway/v1/control_pb';
import { McpServers } from '../../src/api/gen/holdfast/gateway/v1/mcp_pb';
import { Skills } from '../../src/api/gen/holdfast/gateway/v1/skills_pb';
import { expect } from '../fixtures';
import { AGENT, openAgent, session } from './agent';
import { task } from './task';

const SKILL = '---\nname: water-the-plants\ndescription: Say which plants need water today.\n---\n\n# Water the plants\n\nAsk for the weather first.\n';

/** A ZIP of one file, which is not compressed. */
function zip(name: string, content: string): Buffer {
  const [path, data] = [Buffer.from(name), Buffer.from(content)];
  const common = Buffer.alloc(26);
  common.writeUInt16LE(20, 0);
  common.writeUInt32LE(crc32(data), 10);
  common.writeUInt32LE(data.length, 14);
  common.writeUInt32LE(data.length, 18);
  common.writeUInt16LE(path.length, 22);
  const file = Buffer.concat([Buffer.from('PK\x03\x04'), common, path, data]);
  const entry = Buffer.concat([Buffer.from('PK\x01\x02\x14\x00'), common, Buffer.alloc(14), path]);
  const end = Buffer.alloc(18);
  end.writeUInt16LE(1, 4);
  end.writeUInt16LE(1, 6);
  end.writeUInt32LE(entry.length, 8);
  end.writeUInt32LE(file.length, 12);
  return Buffer.concat([file, entry, Buffer.from('PK\x05\x06'), end]);
}

task('install a skill, and switch it off for an agent', { role: 'owner', maxClicks: 9 }, async (args) => {
  const { person, page } = args;
  await person.open('Skills');
  const archive = { name: 'water-the-plants.zip', mimeType: 'application/zip', buffer: zip('SKILL.md', SKILL) };
  await person.chooseFiles(page.getByRole('button', { name: 'Upload a ZIP' }), archive);
  const installed = page.getByRole('dialog', { name: 'water-the-plants' });
  await expect(installed).toContainText('Ask for the weather first.');
  await page.keyboard.press('Escape');
  await expect(page.getByRole('grid', { name: 'Skills' }).getByRole('row').filter({ hasText: 'water-the-plants' })).toContainText('Ready');
  const signedIn = await session(args);
  const { skills } = await signedIn.client(Skills).listSkills({ agent: AGENT });
  expect(skills.find(({ name }) => name === 'water-the-plants')).toMatchObject({ scope: 'tenant', lacks: [] });

  await openAgent(args, 'Skills');
  const ofAgent = page.getByRole('grid', { name: 'Skills' });
  await person.openRow(ofAgent, 'water-the-plants');
  const skill = page.getByRole('dialog', { name: 'water-the-plants' });
  const isOn = skill.getByRole('switch', { name: 'On for this agent' });
  await expect(isOn).toBeChecked();
  await person.toggle(isOn);
  await expect(isOn).not.toBeChecked();
  await page.keyboard.press('Escape');
  await expect(ofAgent.getByRole('row').filter({ hasText: 'water-the-plants' })).toContainText('Off');
  const { agent } = await signedIn.client(Agents).getAgent({ agent: AGENT });
  expect(agent?.context?.excludeSkills).toEqual(['water-the-plants']);
});

task('add an MCP server with a wrong address, read the error, and remove it', { role: 'owner', maxClicks: 10 }, async (args) => {
  const { person, page } = args;
  const servers = async () => (await (await session(args)).client(McpServers).listMcpServers({})).servers.map(({ name, url }) => ({ name, url }));
  await person.open('Skills');
  await person.showTab('MCP servers');
  await person.press(page.getByRole('button', { name: 'New MCP server' }));
  const form = page.getByRole('dialog', { name: 'New MCP server' });
  await person.write(form.getByRole('textbox', { name: /^Name/ }), 'weather');
  await person.write(form.getByRole('textbox', { name: /^Address/ }), 'http://127.0.0.1:9/mcp');
  await person.press(form.getByRole('button', { name: 'Save' }));
  const server = page.getByRole('region', { name: 'weather' });
  await expect(server.getByText(/^It cannot be used: .*127\.0\.0\.1/)).toBeVisible({ timeout: 20_000 });
  expect(await servers()).toEqual([{ name: 'weather', url: 'http://127.0.0.1:9/mcp' }]);
  await person.press(server.getByRole('button', { name: 'Remove' }));
  await person.press(page.getByRole('dialog', { name: /^Remove weather/ }).getByRole('button', { name: 'Remove' }));
  await expect(page.getByText('There is no MCP server')).toBeVisible();
  expect(await servers()).toEqual([]);
});
