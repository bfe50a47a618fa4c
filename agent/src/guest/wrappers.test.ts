import { spawnSync } from 'node:child_process';
import { describe, expect, test } from '@jest/globals';
import { type OutputLimits, posixArguments, SHELL } from './posix-wrapper.ts';
import { quoted, windowsArguments } from './windows-wrapper.ts';

const LIMITS: OutputLimits = { out: 100, err: 100, merged: false };

describe('the shell around a program', () => {
  function run(path: string, args: string[], limits = LIMITS, input = '') {
    const result = spawnSync(SHELL, posixArguments(path, args, limits), { input });
    return { ...result, out: result.stdout.toString(), err: result.stderr.toString() };
  }
  const sh = (script: string, limits = LIMITS) => run('sh', ['-c', script], limits);

  test('gives it its arguments as they are', () => {
    const args = ['a b', "it's", '"$HOME"', '`id`', '*', '', '-n', 'ü\n'];
    const { out } = run('sh', ['-c', 'for a; do printf "[%s]" "$a"; done', 'x', ...args]);
    expect(out).toBe(args.map(arg => `[${arg}]`).join(''));
  });

  test('ends as it ends', () => {
    expect(sh('exit 200').status).toBe(200);
    expect(sh('exit 137').status).toBe(137);
    expect(sh('kill -9 $$')).toMatchObject({ status: null, signal: 'SIGKILL' });
    expect(run('/none', [])).toMatchObject({ status: 127, err: '/none: not found\n' });
  });

  test('keeps its streams apart, or together, or drops one', () => {
    const script = 'echo out; echo err >&2';
    expect(sh(script)).toMatchObject({ out: 'out\n', err: 'err\n' });
    expect(sh(script, { ...LIMITS, merged: true, err: 0 })).toMatchObject({ out: 'out\nerr\n', err: '' });
    expect(sh(script, { ...LIMITS, out: 0 })).toMatchObject({ out: '', err: 'err\n' });
  });

  test('passes its standard input on, and none of the pipes', () => {
    expect(run('cat', [], LIMITS, 'from outside').out).toBe('from outside');
    // what the test runner passes on to all its children is closed first; 3 is the directory that is listed
    const bare = 'exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; exec "$@"';
    const args = posixArguments('sh', ['-c', 'ls /proc/self/fd'], LIMITS);
    const { stdout } = spawnSync(SHELL, ['-c', bare, 'sh', SHELL, ...args], { encoding: 'utf8' });
    expect(stdout.split('\n').filter(name => name !== '' && Number(name) < 10)).toEqual(['0', '1', '2', '3']);
  });

  test('passes on the first bytes only, and reads the rest', () => {
    const { status, stdout, err } = sh('head -c 3000000 /dev/zero; echo end >&2; exit 3');
    expect({ status, length: stdout.length, err }).toEqual({ status: 3, length: 100, err: 'end\n' });
  });
});

describe('the command line of a Windows program', () => {
  test.each([
    ['plain', 'plain'],
    ['', '""'],
    ['a b', '"a b"'],
    ['say "hi"', '"say \\"hi\\""'],
    ['C:\\dir\\', 'C:\\dir\\'],
    ['C:\\my dir\\', '"C:\\my dir\\\\"'],
    ['a\\"b', '"a\\\\\\"b"'],
    ['\\\\host\\a b\\\\', '"\\\\host\\a b\\\\\\\\"'],
    ['\\" \\\\""\\', '"\\\\\\" \\\\\\\\\\"\\"\\\\"'],
  ])('%j is %s', (argument, expected) => {
    expect(quoted(argument)).toBe(expected);
  });

  test('a row of a million backslashes that no quotation mark follows stays as it is, at once', () => {
    const argument = `${'\\'.repeat(1_000_000)} end`;
    expect(quoted(argument) === `"${argument}"`).toBe(true);
  });

  const scriptOf = (args: string[]) => Buffer.from(args.at(-1)!, 'base64').toString('utf16le');

  test('the script holds program, arguments and environment as literals', () => {
    const program = { path: "C:\\it's\\p.exe", args: ['a b', '$x;`'], env: ['N=v=w'], hasInput: false };
    const args = windowsArguments(program, LIMITS);
    expect(args.slice(0, -1)).toEqual(['-NoLogo', '-NoProfile', '-NonInteractive', '-EncodedCommand']);
    const script = scriptOf(args);
    expect(script).toContain("$i.FileName='C:\\it''s\\p.exe'");
    expect(script).toContain('$i.Arguments=\'"a b" $x;`\'');
    expect(script).toContain("$i.EnvironmentVariables['N']='v=w'");
    expect(script).toContain('$p.StandardInput.Close();'.slice(0, -1));
    expect(script).toContain(`$p.StandardOutput.BaseStream $o 100`);
  });

  test('standard input is passed on when there is one', () => {
    const script = scriptOf(windowsArguments({ path: 'p', args: [], hasInput: true }, LIMITS));
    expect(script).toContain('[Console]::OpenStandardInput().CopyToAsync');
  });
});
