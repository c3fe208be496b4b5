"""The lab: experiments that measure counterveil. Never imported by the product."""
