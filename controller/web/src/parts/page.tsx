import { Content, Flex, FlexItem, PageSection, Title } from '@patternfly/react-core';
import { type ReactNode, useEffect, useRef } from 'react';
import { useLocation, useNavigationType } from 'react-router';
import { useWords } from '../texts/index.tsx';

interface PageProps {
  title: string;
  /** Under the title. */
  about?: ReactNode;
  /** Beside the title. */
  actions?: ReactNode;
  children: ReactNode;
}

/** A page with its one heading, which has the focus after one has come here by a link. */
export function ViewPage({ title, about, actions, children }: PageProps) {
  const { texts } = useWords();
  const heading = useRef<HTMLHeadingElement>(null);
  const { pathname } = useLocation();
  const cameBy = useNavigationType();
  useEffect(() => {
    document.title = `${title} · ${texts.product}`;
  }, [title, texts]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: once for each page that is gone to, whatever its title becomes
  useEffect(() => {
    if (cameBy !== 'POP') heading.current?.focus();
  }, [pathname]);
  return (
    <>
      <PageSection hasBodyWrapper={false}>
        <Flex justifyContent={{ default: 'justifyContentSpaceBetween' }} rowGap={{ default: 'rowGapSm' }}>
          <FlexItem>
            <Title headingLevel="h1" ref={heading} tabIndex={-1} className="vk-title">
              {title}
            </Title>
            {about && <Content component="p">{about}</Content>}
          </FlexItem>
          {actions && <FlexItem>{actions}</FlexItem>}
        </Flex>
      </PageSection>
      <PageSection hasBodyWrapper={false} isFilled>
        {children}
      </PageSection>
    </>
  );
}
