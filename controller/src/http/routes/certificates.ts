import Type from 'typebox';
import type { RouteModule } from '../app.ts';
import { principalOf } from '../app.ts';
import { listFromArray, parsePage } from '../paging.ts';
import { CertificateSchema, RevokedCertificateSchema, Serial } from '../schemas/certificate.ts';
import { body, listOf, listQuery, ref } from '../schemas/common.ts';

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
        await services.revocations.list(),
        { render: record => record, nameOf: record => record.subject },
      ),
  );

  app.post(
    '/api/certificates/revoke/',
    {
      config: {
        access: 'certificate.manage',
        errors: ['certificate_not_found', 'certificate_in_use'],
      },
      schema: {
        tags,
        summary: 'Let a certificate count no more, for good; the answer says whose it is',
        body: body(
          {
            serial: Serial,
            compromised: Type.Optional(
              Type.Boolean({
                description: 'others may have its key: what it signed counts as signed by nobody',
              }),
            ),
            unknown: Type.Optional(
              Type.Boolean({
                description:
                  'take also a serial that is not known here: of a certificate that an earlier version issued, or one issued since the database was put back',
              }),
            ),
          },
          { serial: '5f3ed66a8870ba2e', compromised: true },
        ),
        response: { 200: ref(RevokedCertificateSchema) },
      },
    },
    async request => {
      const { serial, compromised = false, unknown = false } = request.body;
      const reason = compromised ? 'compromised' : 'removed';
      return services.revocations.revoke(serial, reason, principalOf(request).username, unknown);
    },
  );
};
