import { expect, test } from '@jest/globals';
import { knownUrl } from './other-names.ts';

test.each([
  ['/api/domains/d/vdi-prepare/', '/api/domains/d/prepare/'],
  ['/api/domains/d/vdi-prepare?async=1', '/api/domains/d/prepare?async=1'],
  ['/api/domains/d/attach-veil-utils-iso/?a=/x/', '/api/domains/d/attach-guest-tools-iso/?a=/x/'],
])('%s is %s', (other, known) => expect(knownUrl(other)).toBe(known));

test.each([
  '/api/domains/d/prepare/',
  '/api/domains/vdi-prepare/',
  '/api/nodes/d/vdi-prepare/',
  '/api/domains/d/constructor/',
  '/api/domains/d/ssh-keys/vdi-prepare/',
  '/api/domains/?name=/api/domains/d/vdi-prepare/',
])('%s stays', url => expect(knownUrl(url)).toBe(url));
