import { randomBytes } from 'node:crypto';
import { expect, test } from '@jest/globals';
import { Sealer } from './sealing.ts';

const sealer = new Sealer(randomBytes(32));

test('it opens what it sealed, and every seal is another text', () => {
  const sealed = sealer.seal({ password: 'opensesame' }, 'a');
  expect(sealer.open(sealed, 'a')).toEqual({ password: 'opensesame' });
  expect(sealer.seal({ password: 'opensesame' }, 'a')).not.toBe(sealed);
  expect(Buffer.from(sealed, 'base64').toString('latin1')).not.toContain('opensesame');
});

test('it opens nothing for another owner, under another key, or after a change', () => {
  const sealed = sealer.seal({ password: 'opensesame' }, 'a');
  expect(sealer.open(sealed, 'b')).toBeUndefined();
  expect(new Sealer(randomBytes(32)).open(sealed, 'a')).toBeUndefined();
  const bytes = Buffer.from(sealed, 'base64');
  for (let at = 0; at < bytes.length; at += 1) {
    const changed = Buffer.from(bytes);
    changed[at] = changed[at]! ^ 1;
    expect(sealer.open(changed.toString('base64'), 'a')).toBeUndefined();
  }
  for (const cut of ['', 'AA', sealed.slice(0, 20), sealed.slice(0, 40)])
    expect(sealer.open(cut, 'a')).toBeUndefined();
});
