import { expect, test } from '@jest/globals';
import { FailureLimit } from './failure-limit.ts';

test('so many failures of one place are let pass, and no more until they are forgotten', () => {
  let clock = 0;
  const limit = new FailureLimit({ most: 2, windowMs: 60_000, nowMs: () => clock });
  const here = { ip: '192.0.2.1' };
  limit.failed(here);
  clock = 30_000;
  limit.require(here);
  limit.failed(here);
  expect(() => limit.require(here)).toThrow(expect.objectContaining({ params: { seconds: '30' } }));
  limit.require({ ip: '192.0.2.2' });
  clock = 60_000;
  limit.require(here);
});
