import Type from 'typebox';
import type { RouteModule } from '../app.ts';
import { principalOf } from '../app.ts';
import { listFromArray, parsePage } from '../paging.ts';
import { CertificateSchema, Serial } from '../schemas/certificate.ts';
import { body, listOf, listQuery } from '../schemas/common.ts';

const tags = ['certificates'];
const ORDERINGS = ['-issued', 'expires_on', 'subject', 'kind'] as const;

export const certificateRoutes: RouteModule = (app, services) => {
  app.get(
    '/api/certificates/',
    {
      config: { access: 'certificate.manage' },
      schema: {
        tags,
        summary: 'List the certificates of nodes and services, newest first',
        querystring: listQuery({}),
        response: { 200: listOf(CertificateSchema) },
      },
    },
    async request =>
      listFromArray(
        request,
        parsePage(request.query, CertificateSchema, ORDERINGS),
        (await services.revocations.list()).filter(({ id }) => !id.startsWith('before:')),
        record => record,
        record => record.subject,
      ),
  );

  app.post(
    '/api/certificates/revoke/',
    {
      config: { access: 'certificate.manage' },
      schema: {
        tags,
        summary: 'Let a certificate count no more, also one that an earlier version issued; for good',
        body: body({
          serial: Serial,
          compromised: Type.Optional(
            Type.Boolean({
              description: 'others may have its key: what it signed counts as signed by nobody',
            }),
          ),
        }),
        response: { 200: body({}) },
      },
    },
    async request => {
      const reason = request.body.compromised === true ? 'compromised' : 'removed';
      await services.revocations.revoke(request.body.serial, reason, principalOf(request).username);
      return {};
    },
  );
};
