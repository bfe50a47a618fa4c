import { expect, test } from '@jest/globals';
import { joinHostPort, splitHostPort } from './host-port.ts';

test.each([
  ['node1.example', 9443, 'node1.example:9443'],
  ['192.0.2.7', 1, '192.0.2.7:1'],
  ['2001:db8::7', 9443, '[2001:db8::7]:9443'],
])('%s and %d are %s', (host, port, address) => {
  expect(joinHostPort(host, port)).toBe(address);
  expect(splitHostPort(address)).toEqual({ host, port });
});
