/** Certificates that nodes and services were given, and the end of one. */
import { Label } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { answer, api, list, type Schemas, SELDOM } from '../api/client.ts';
import { ActionMenu } from '../parts/actions.tsx';
import { Dialog, TypedName } from '../parts/confirm.tsx';
import { CheckField } from '../parts/fields.tsx';
import { Empty, ListBar, useList } from '../parts/list.tsx';
import { ViewPage } from '../parts/page.tsx';
import { rightReason } from '../parts/reasons.ts';
import { Shown } from '../parts/shown.tsx';
import { useAsked } from '../parts/use-asked.ts';
import { useWords } from '../texts/index.tsx';

type Certificate = Schemas['Certificate'];

export default function CertificatesPage() {
  const { texts } = useWords();
  const words = texts.certificates;
  const reason = rightReason('certificate.manage', useAsked());
  const state = useList();
  const query = useQuery({
    queryKey: ['certificates', state.query],
    queryFn: () => list<Certificate>(api.GET('/api/certificates/', { params: { query: state.query } })),
    placeholderData: keepPreviousData,
    enabled: reason === undefined,
    ...SELDOM,
  });
  if (reason !== undefined)
    return (
      <ViewPage title={words.title}>
        <Empty title={reason} />
      </ViewPage>
    );
  return (
    <ViewPage title={words.title}>
      <ListBar list={state} count={query.data?.count} />
      <Shown query={query}>
        {({ results }) =>
          results.length === 0 ? (
            <Empty list={state} title={words.empty} />
          ) : (
            <CertificateTable certificates={results} />
          )
        }
      </Shown>
    </ViewPage>
  );
}

function CertificateTable({ certificates }: { certificates: readonly Certificate[] }) {
  const { texts, format } = useWords();
  const words = texts.certificates;
  const [leaving, setLeaving] = useState<Certificate | undefined>();
  return (
    <>
      <Table aria-label={words.title} variant="compact" gridBreakPoint="grid-lg">
        <Thead>
          <Tr>
            <Th modifier="wrap">{words.subject}</Th>
            <Th modifier="wrap">{words.kind}</Th>
            <Th modifier="wrap">{words.serial}</Th>
            <Th modifier="wrap">{texts.tokens.expires}</Th>
            <Th modifier="wrap">{texts.common.status}</Th>
            <Th screenReaderText={texts.list.actions} />
          </Tr>
        </Thead>
        <Tbody>
          {certificates.map(one => (
            <Tr key={one.id}>
              <Td dataLabel={words.subject} className="vk-name">
                {one.subject}
              </Td>
              <Td dataLabel={words.kind}>{[words.kinds[one.kind], one.role].filter(Boolean).join(', ')}</Td>
              <Td dataLabel={words.serial} className="vk-name">
                {one.id}
              </Td>
              <Td dataLabel={texts.tokens.expires}>{format.time(one.expires_on)}</Td>
              <Td dataLabel={texts.common.status}>
                <Label isCompact variant="outline" status={one.revoked_on === null ? 'success' : 'danger'}>
                  {one.revoked_on === null ? words.counts : words.revoked}
                </Label>
                {one.revoked_on !== null && <div className="vk-small">{format.age(one.revoked_on)}</div>}
              </Td>
              <Td isActionCell>
                <ActionMenu
                  of={one.id}
                  actions={[
                    {
                      key: 'revoke',
                      label: texts.tokens.revoke,
                      reason: one.revoked_on === null ? undefined : words.revoked,
                      act: () => setLeaving(one),
                      isDanger: true,
                    },
                  ]}
                />
              </Td>
            </Tr>
          ))}
        </Tbody>
      </Table>
      {leaving && <Revoke certificate={leaving} close={() => setLeaving(undefined)} />}
    </>
  );
}

function Revoke({ certificate, close }: { certificate: Certificate; close: () => void }) {
  const { texts } = useWords();
  const words = texts.certificates;
  const client = useQueryClient();
  const [typed, setTyped] = useState('');
  const [compromised, setCompromised] = useState(false);
  const { id: serial } = certificate;
  const act = async () => {
    await answer(
      api.POST('/api/certificates/revoke/', { body: { serial, ...(compromised ? { compromised } : {}) } }),
    );
    await client.invalidateQueries({ queryKey: ['certificates'] });
  };
  return (
    <Dialog
      title={texts.tokens.revokeTitle(serial)}
      submit={texts.tokens.revoke}
      isDanger
      isReady={typed === serial}
      act={act}
      close={close}
    >
      <p>{words.revokeText}</p>
      <CheckField
        id="certificate-compromised"
        label={words.compromised}
        isOn={compromised}
        change={setCompromised}
      />
      <TypedName label={texts.common.typeName(serial)} typed={typed} type={setTyped} />
    </Dialog>
  );
}
