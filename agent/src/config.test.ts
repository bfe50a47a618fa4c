import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { loadAgentConfig } from './config.ts';

const EXAMPLE = new URL('../../packaging/agent.example.yaml', import.meta.url).pathname;
let directory: string;

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'virtkeep-config-'));
});
afterAll(() => rmSync(directory, { recursive: true }));

function load(text: string) {
  const path = join(directory, 'agent.yaml');
  writeFileSync(path, text);
  return loadAgentConfig(path);
}

function keysOf(value: object, prefix = ''): string[] {
  return Object.entries(value).flatMap(([key, item]) =>
    typeof item === 'object' && item !== null
      ? keysOf(item as object, `${prefix}${key}.`)
      : [`${prefix}${key}`],
  );
}

test('an empty file gives the defaults, which are what the example shows', () => {
  expect(loadAgentConfig(EXAMPLE)).toEqual(load(''));
});

test('the example with everything switched on is valid and names every key', () => {
  const full = load(readFileSync(EXAMPLE, 'utf8').replace(/^( *)#(\w+:)/gm, '$1$2'));
  const optional = [
    'node_id',
    'advertise.port',
    'base_data_pool',
    'guest.tools_image',
    'hooks.backup.command.0',
    'import.trusted_ca_file',
  ];
  expect(keysOf(full).sort()).toEqual([...keysOf(load('')), ...optional].sort());
});

test.each([
  ['libvrt: {}', 'libvrt'],
  ['listen: { port: 70000 }', 'listen.port'],
  ['node_id: NODE', 'node_id: must be a lower-case UUID'],
  ['state_dir: relative', 'state_dir: must be an absolute path'],
  ['log: { level: loud }', 'log.level'],
  ['hooks: { backup: { command: [] } }', 'hooks.backup.command'],
  ['hooks: { backup: { command: [hook] } }', 'hooks.backup.command.0: must be an absolute path'],
  ['a: [', 'not valid YAML'],
])('%s is refused with a message that says where', (text, message) => {
  expect(() => load(text)).toThrow(message);
});
