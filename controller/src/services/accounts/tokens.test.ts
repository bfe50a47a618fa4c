import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { TokenSigner } from '../../auth/jwt.ts';
import { type TestServer, testServer } from '../../http/test-server.ts';
import { TokenService } from './tokens.ts';

const DAY_MS = 86_400_000;
let server: TestServer;

beforeEach(async () => {
  server = await testServer([]);
});
afterEach(() => server.close());

function tokensOfLife(lifetimeMs: number): TokenService {
  const { db, users, passwords, sessions } = server.services;
  const signer = new TokenSigner(Buffer.alloc(64, 1));
  return new TokenService({ db, users, signer, passwords, sessions, lifetimeMs });
}

test('a logout lasts as long as any token of its login, also when logins lived longer before', async () => {
  const { token } = await tokensOfLife(30 * DAY_MS).login('root', 'long enough 1', '10.0.0.1');
  const tokens = tokensOfLife(DAY_MS / 3);
  const viewer = await tokens.principal(token);
  await tokens.remove(viewer.jti, viewer);
  await tokens.prune(new Date(Date.now() + 30 * DAY_MS));
  await expect(tokens.principal(token)).rejects.toMatchObject({ msgKey: 'token_revoked' });
  await tokens.prune(new Date(Date.now() + 32 * DAY_MS));
  expect(await server.services.db.selectFrom('revoked_sessions').selectAll().execute()).toEqual([]);
});
