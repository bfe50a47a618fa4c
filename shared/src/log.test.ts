import { expect, test } from '@jest/globals';
import { VirtkeepError } from './errors.ts';
import { logLine, redact, redactText } from './log.ts';

test('whatever bears a secret name is replaced, at any depth', () => {
  const input = {
    user: 'a',
    password: 'p',
    nested: [{ api_token: 't', size: 5n }],
    ssh_key: 'k',
    Authorization: 'jwt x',
  };
  expect(redact(input)).toEqual({
    user: 'a',
    password: '[redacted]',
    nested: [{ api_token: '[redacted]', size: '5' }],
    ssh_key: '[redacted]',
    Authorization: '[redacted]',
  });
});

test('errors keep message, key, stack and cause; cycles end', () => {
  const cause = Object.assign(new Error('no space'), { code: 'ENOSPC' });
  expect(redact(new VirtkeepError('disk_full', { path: '/x' }, { cause }))).toMatchObject({
    msg_key: 'disk_full',
    code: '50205',
    stack: expect.any(String),
    cause: { message: 'no space', code: 'ENOSPC' },
  });
  const cycle: Record<string, unknown> = {};
  cycle.self = cycle;
  expect(JSON.stringify(redact(cycle))).toContain('[…]');
});

test('a key named stack makes no error of an object: nothing beside it is hidden', () => {
  const body = { stack: 'x', vdisk: 'the disk', password: 'p', inner: { stack: 'y', path: '/secret' } };
  expect(redact(body)).toEqual({
    stack: 'x',
    vdisk: 'the disk',
    password: '[redacted]',
    inner: { stack: 'y', path: '/secret' },
  });
});

test.each(['pwd', 'PWD', 'bearer', 'Bearer', 'api_key', 'apiKey', 'x-api-key', 'apikey', 'passwd', 'db_pwd'])(
  '%s is a secret',
  name => {
    expect(redact({ [name]: 'value' })).toEqual({ [name]: '[redacted]' });
  },
);

test('no text of a guest or a client breaks a line, moves a cursor or turns its direction', () => {
  const hostile =
    'a\nb\rc\u001b[31md\u009b2Je\u2028f\u2029g\u202eh\u2066i\u200bj\u0000k\u007fl\u061cm\ufeffn';
  const line = logLine({
    level: 'error',
    message: hostile,
    text: hostile,
    [hostile]: 1,
    error: new Error(hostile),
  });
  expect(line).not.toMatch(
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not be there
    /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/,
  );
  expect(JSON.parse(line)).toMatchObject({ message: hostile, text: hostile, [hostile]: 1 });
});

test.each([
  ['password=x', 'password=[redacted]'],
  ['the DB_PASSWORD_OLD: "x y"', 'the DB_PASSWORD_OLD: [redacted] y"'],
  [`{"my.api-key.2" : 'x', "a": 1}`, `{"my.api-key.2" : [redacted] "a": 1}`],
  ['Authorization: Bearer abc.def next', 'Authorization: Bearer [redacted] next'],
  ['sent as bearer abc, token:x', 'sent as bearer [redacted] token:[redacted]'],
  ['a token is missing; error: none', 'a token is missing; error: none'],
])('of a text, %s is written as %s', (text, redacted) => {
  expect(redactText(text)).toBe(redacted);
});

test.each(['a', 'token', 'token-', 'bearer ', 'password ', 'token\t\t'])(
  'a text of a million times %j is written at once, where looking at it anew from each of its characters would take hours',
  piece => {
    const text = piece.repeat(1_000_000);
    expect(redactText(text).length).toBeGreaterThan(0);
  },
);
