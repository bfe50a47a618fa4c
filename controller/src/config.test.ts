import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { ConfigError, parseConfig } from '@virtkeep/shared/config';
import { chosenConfig, configSchema } from './config.ts';

const EXAMPLE = new URL('../../packaging/controller.example.yaml', import.meta.url);

/** The example with its settings switched on: lines that are a key, or a list or comment inside one. */
function switchedOn(text: string): string {
  return text.replace(/^# ( *(?:[a-z_]+:( .*)?|# .*))$/gm, '$1');
}

test('the example names every key, and its values are the defaults', () => {
  const example = parseConfig(switchedOn(readFileSync(EXAMPLE, 'utf8')), 'example', configSchema);
  const optional = { tls: {}, initial_admin: {}, api: {} };
  const { tls, initial_admin: admin, api, database, database_password_file, ...others } = example;
  const { key_file, address, ...cluster } = others.cluster;
  expect([key_file, address]).toEqual([expect.stringMatching('^/'), expect.any(String)]);
  const rest = { ...others, cluster };
  expect([database, database_password_file]).toEqual([
    expect.stringMatching('^postgres://'),
    expect.stringMatching('^/'),
  ]);
  expect({ ...rest, ...optional }).toEqual({ ...configSchema.parse({}), ...optional });
  expect(tls).toMatchObject({
    mode: 'self_signed',
    certificate: expect.any(String),
    key: expect.any(String),
  });
  expect(admin).toMatchObject({ username: 'admin', password_file: expect.any(String) });
  expect(Object.keys(api).sort()).toEqual(['emulator_name', 'other_names', 'public_url']);
  expect(api.other_names).toBe(true);
});

test('plain HTTP is offered to this machine alone, unless the settings say otherwise', () => {
  const hostOf = (text: string) => parseConfig(text, 'test.yaml', configSchema).listen.host;
  expect(hostOf('tls: {mode: off}')).toBe('127.0.0.1');
  expect(hostOf('{tls: {mode: off}, listen: {port: 8080}}')).toBe('127.0.0.1');
  expect(hostOf('{tls: {mode: off}, listen: {host: 10.0.0.1}}')).toBe('10.0.0.1');
  expect(hostOf('listen: {port: 8080}')).toBe('0.0.0.0');
});

test.each([
  ['an unknown key', 'colour: blue', 'colour'],
  ['a relative path', 'state_dir: data', 'state_dir'],
  ['a port out of range', 'listen: {port: 70000}', 'listen.port'],
  ['certificate files that are not named', 'tls: {mode: files}', 'certificate'],
  ['broken YAML', 'listen: {', 'YAML'],
  ['a database of another kind', 'database: mysql://h/d', 'postgres://'],
  ['a database without a name', 'database: postgres://h', 'must name the database'],
  ['a database with a parameter nobody knows', 'database: postgres://h/d?ssl=1', 'parameter "ssl"'],
  ['a password as a parameter', 'database: postgres://h/d?password=x', 'parameter "password"'],
  ['a weak sslmode', 'database: postgres://h/d?sslmode=prefer', 'sslmode'],
  ['a password file of a database in a file', 'database_password_file: /p', 'absent'],
  [
    'two passwords',
    '{database: "postgres://u:p@h/d", database_password_file: /p}',
    'must not be there beside a password',
  ],
])('%s is refused by name', (_what, text, named) => {
  expect(() => parseConfig(text, 'test.yaml', configSchema)).toThrow(ConfigError);
  expect(() => parseConfig(text, 'test.yaml', configSchema)).toThrow(named);
});

test.each([
  'database: "postgres://u:s3cr3t@h:port/d"',
  'database: "mysql://u:s3cr3t@h/d"',
  'database: "postgres://u:s3cr3t@h"',
  'database: "postgres://u:s3cr3t%zz@h/d"',
  'database: "postgres://u:s3cr3t/x@h/d/e"',
  'database: "postgres://u:s3cr3t@h/d?x=y"',
  '{database: "postgres://u:s3cr3t@h/d", database_password_file: /p}',
])('%s is refused without its password', text => {
  const refused = () => parseConfig(text, 'test.yaml', configSchema);
  expect(refused).toThrow(/database(_password_file)?: /);
  expect(refused).not.toThrow(/s3cr3t/);
});

test.each([
  'postgres://h/d',
  'postgresql://u:p@[::1]:5433/d?sslmode=verify-ca&sslrootcert=/ca.pem',
  'postgres:///d?host=/run/postgresql&user=u',
])('%s is a database', database => {
  expect(configSchema.parse({ database }).database).toBe(database);
});

test('a command without a file of settings works by those of the service, where there are such', () => {
  const directory = mkdtempSync(join(tmpdir(), 'virtkeep-config-'));
  const [usual, other] = [join(directory, 'controller.yaml'), join(directory, 'other.yaml')];
  try {
    expect(chosenConfig(undefined, usual).state_dir).toBe(configSchema.parse({}).state_dir);
    writeFileSync(usual, 'state_dir: /srv/usual');
    writeFileSync(other, 'state_dir: /srv/other');
    expect(chosenConfig(undefined, usual).state_dir).toBe('/srv/usual');
    expect(chosenConfig(other, usual).state_dir).toBe('/srv/other');
    writeFileSync(usual, 'state_dri: /srv/usual');
    expect(() => chosenConfig(undefined, usual)).toThrow(ConfigError);
  } finally {
    rmSync(directory, { recursive: true });
  }
});
