import {
  DescriptionList,
  DescriptionListDescription,
  DescriptionListGroup,
  DescriptionListTerm,
} from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { answer, api, type Domain, type Schemas } from '../../../api/client.ts';
import { ActionButton } from '../../../parts/actions.tsx';
import { domainReason } from '../../../parts/reasons.ts';
import { Shown } from '../../../parts/shown.tsx';
import { useToasts } from '../../../parts/toasts.tsx';
import { useAsked } from '../../../parts/use-asked.ts';
import { useWords } from '../../../texts/index.tsx';

type Info = Schemas['GuestInfo'];

/** What the guest told of itself last; it is asked now on request. */
export function Information({ domain }: { domain: Domain }) {
  const { texts } = useWords();
  const client = useQueryClient();
  const { attempt } = useToasts();
  const queryKey = ['domains', 'guest', domain.id];
  const params = { path: { id: domain.id } };
  const query = useQuery({
    queryKey,
    queryFn: () => answer(api.GET('/api/domains/{id}/guest-info/', { params })),
  });
  const refresh = async () => {
    const call = api.GET('/api/domains/{id}/guest-info/', { params: { ...params, query: { refresh: '1' } } });
    client.setQueryData(queryKey, await answer(call));
  };
  return (
    <>
      <ActionButton
        action={{
          key: 'refresh',
          label: texts.guest.ask,
          reason: domainReason('guest_command', domain, useAsked()),
          act: () => attempt(refresh),
        }}
      />
      <Shown query={query}>{info => <Told info={info} />}</Shown>
    </>
  );
}

function Told({ info }: { info: Info }) {
  const { texts, format } = useWords();
  const words = texts.guest;
  const facts: [string, string][] = [
    [words.asked, format.time(info.refreshed)],
    [words.agent, info.agent_version ?? texts.none],
    [words.hostname, info.hostname ?? texts.none],
    [words.system, info.os?.['pretty-name'] || texts.none],
    [words.kernel, info.os?.['kernel-release'] || texts.none],
    [words.addresses, [...info.ipv4, ...info.ipv6].join(', ') || texts.none],
    [words.users, info.users.map(({ name }) => name).join(', ') || texts.none],
  ];
  return (
    <>
      <DescriptionList columnModifier={{ default: '1Col', md: '3Col' }} className="vk-block">
        {facts.map(([term, fact]) => (
          <DescriptionListGroup key={term}>
            <DescriptionListTerm>{term}</DescriptionListTerm>
            <DescriptionListDescription className="vk-name">{fact}</DescriptionListDescription>
          </DescriptionListGroup>
        ))}
      </DescriptionList>
      {info.frozen_since !== null && <p>{words.frozen(format.age(info.frozen_since))}</p>}
      {info.file_systems.length > 0 && <FileSystems info={info} />}
    </>
  );
}

function FileSystems({ info }: { info: Info }) {
  const { texts, format } = useWords();
  const words = texts.guest;
  return (
    <Table aria-label={words.fileSystems} variant="compact">
      <Thead>
        <Tr>
          <Th modifier="wrap">{words.mountpoint}</Th>
          <Th modifier="wrap">{texts.vm.device}</Th>
          <Th modifier="wrap">{texts.pools.type}</Th>
          <Th modifier="wrap">{texts.pools.used}</Th>
        </Tr>
      </Thead>
      <Tbody>
        {info.file_systems.map(({ name, mountpoint, type, used_bytes, total_bytes }) => (
          <Tr key={`${name} ${mountpoint}`}>
            <Td dataLabel={words.mountpoint} className="vk-name">
              {mountpoint}
            </Td>
            <Td dataLabel={texts.vm.device} className="vk-name">
              {name}
            </Td>
            <Td dataLabel={texts.pools.type}>{type}</Td>
            <Td dataLabel={texts.pools.used}>
              {texts.pools.usedOf(format.size(used_bytes), format.size(total_bytes))}
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}
