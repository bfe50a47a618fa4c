import { describe, expect, test } from '@jest/globals';
import { windowsArguments } from '../../guest/windows-wrapper.ts';
import type { Guest, Program, ProgramResult } from './guest.ts';
import { sysprepSwitches } from './sysprep.ts';
import * as windows from './windows.ts';

const SCRIPTS = {
  JOIN: windows.JOIN,
  LEAVE: windows.LEAVE,
  RENAME: windows.RENAME,
  SYSPREP: windows.SYSPREP,
  READ_NAME: windows.READ_NAME,
  READ_DOMAIN: windows.READ_DOMAIN,
  READ_BOOT: windows.READ_BOOT,
};
const LIMITS = { out: 1_000_001, err: 1_000_001, merged: false };

const scriptOf = ({ args }: Program) => Buffer.from(args.at(-1)!, 'base64').toString('utf16le');

function guestSaying(result: Partial<ProgramResult>): Guest {
  return {
    name: 'win',
    osInfo: async () => ({ id: 'mswindows' }),
    command: async () => ({}),
    sshKeys: async () => [],
    run: async () => ({ exitCode: 0, out: '', err: '', ...result }),
  };
}

describe('a script for Windows', () => {
  test.each(Object.entries(SCRIPTS))('%s takes what it needs from standard input alone', (_name, script) => {
    const program = windows.powershell(script, { password: 'S3cret!', login: 'adm' }, 1000);
    expect(program.args.join(' ')).not.toContain('S3cret!');
    expect(scriptOf(program)).not.toContain('S3cret!');
    expect(JSON.parse(program.input!)).toEqual({ password: 'S3cret!', login: 'adm' });
  });

  test.each(Object.entries(SCRIPTS))('%s fits into a command line', (_name, script) => {
    const { path, args } = windows.powershell(script, {}, 1000);
    const line = windowsArguments({ path, args, hasInput: true }, LIMITS).join(' ');
    expect(line.length).toBeLessThan(32_000);
  });

  test('is given ASCII, whatever the code page', () => {
    const given = { password: 'Пароль"\\ü', unit: 'OU=Отдел' };
    const text = windows.asciiJson(given);
    expect(text).toMatch(/^[\x20-\x7e]*$/);
    expect(JSON.parse(text)).toEqual(given);
  });
});

describe('its answer', () => {
  const program = windows.powershell(windows.JOIN, { password: 'S3cret!' }, 1000);
  const run = (result: Partial<ProgramResult>, failures?: windows.Failures) =>
    windows.runScript(guestSaying(result), 'joining', program, failures);

  test('is the last line of JSON', async () => {
    expect(await run({ out: 'Welcome!\r\n{"a":1}\r\n' })).toEqual({ a: 1 });
  });

  test('a failure is told without the password', async () => {
    const out = '{"failed":"other","reason":"no S3cret! here"}\r\n';
    await expect(run({ exitCode: 1, out })).rejects.toMatchObject({
      msgKey: 'guest_operation_failed',
      params: { reason: 'no *** here' },
    });
    await expect(run({ exitCode: 1, err: 'is not recognized' })).rejects.toMatchObject({
      params: { reason: 'is not recognized' },
    });
    await expect(run({ out: 'no json' })).rejects.toMatchObject({ msgKey: 'guest_operation_failed' });
  });
});

test('the switches of Sysprep', () => {
  expect(sysprepSwitches({ mode: 'oobe', generalize: true, vmMode: true })).toBe(
    '/generalize /oobe /quit /quiet /mode:vm',
  );
  expect(sysprepSwitches({ mode: 'audit', generalize: false, vmMode: false })).toBe('/audit /quit /quiet');
  expect(() => sysprepSwitches({ mode: 'audit', generalize: true, vmMode: true })).toThrow(/vm_mode/);
});
