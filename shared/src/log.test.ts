import { expect, test } from '@jest/globals';
import { VirtkeepError } from './errors.ts';
import { redact } from './log.ts';

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
