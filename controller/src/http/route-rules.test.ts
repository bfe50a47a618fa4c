import { expect, test } from '@jest/globals';
import type { RouteOptions } from 'fastify';
import { applyRouteRules } from './route-rules.ts';

const route = (url: string, access?: 'user.manage') =>
  ({
    method: 'GET',
    url,
    schema: {},
    config: access === undefined ? {} : { access },
  }) as unknown as RouteOptions;

test('the pages of the API document are public, and nothing else that merely begins like them', () => {
  const docs = route('/api/docs/static/index.html');
  applyRouteRules(docs);
  expect(docs.config?.access).toBe('public');
  const alike = route('/api/docs-of-users/', 'user.manage');
  applyRouteRules(alike);
  expect(alike.config?.access).toBe('user.manage');
  expect(() => applyRouteRules(route('/api/docs-of-users/'))).toThrow('declares no access');
});
