import { expect, test } from '@jest/globals';
import { serverName } from './clients.ts';

test.each([
  ['node.example:7443', {}],
  ['node:7443', {}],
  ['10.0.0.7:7443', { 'grpc.ssl_target_name_override': 'the-id' }],
  ['[fe80::7]:7443', { 'grpc.ssl_target_name_override': 'the-id' }],
])('TLS is given the name of %s, or the id instead of an address', (address, options) => {
  expect(serverName({ id: 'the-id', name: 'n', address })).toEqual(options);
});
