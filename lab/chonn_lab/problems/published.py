"""MD5 of published files by name; None where none is known."""

from types import MappingProxyType

ADVECTION = {
    0.1: "b4be2fc3383f737c76033073e6d2ccfb",
    0.2: "d47b52c1be4b6bcaa8748a8df2f5fbb8",
    0.4: "d595bbfd2c659df995a93cd40d6ea568",
    0.7: "f89030c240a1e90b55649776854a84c2",
    1.0: "1fe41923a4123db55bf4e89bea32e142",
    2.0: "0e9beff98693089c38e213a1f2b9ac43",
    4.0: "a87b03ff425496360e2732921805f47d",
    7.0: "72a286ad2fcba574bd20bc045ba82d58",
}
BURGERS = {
    0.001: "44cb784d5a07aa2b1c864cabdcf625f9",
    0.002: "edf1cd13622d151dfde3e4e5af7a95b4",
    0.004: "435e1fecb8a64a0b4563bb8d09f81c33",
    0.01: "e6d9a4f62baf9a29121a816b919e2770",
    0.02: "7c8c717a3a7818145877baa57106b090",
    0.04: "16f4c7afaf8c16238be157e54c9297c7",
    0.1: "660ba1008d3843bf4e28d2895eb607ce",
    0.2: "01d9333254dff2f3cad090b61f5cf695",
    0.4: "58327a6107e8f9defb5075677cc42533",
    1.0: "9021eba35332d127306f11ef84c1a60f",
    2.0: "70fe0c24d9313e70f6059e5212bdb3d7",
    4.0: "8af7f70166c00ffad377c80fa477d81f",
}
CHECKSUMS: "MappingProxyType[str, str | None]" = MappingProxyType(
    {
        "2D_DarcyFlow_beta1.0_Train.hdf5": "81694ed31306ff2e5f6b76349b0b4389",
        "2D_rdb_NA_NA.h5": "75d838c47aa410694bdc912ea7f22282",
        **{f"1D_Advection_Sols_beta{value}.hdf5": md5 for value, md5 in ADVECTION.items()},
        **{f"1D_Burgers_Sols_Nu{value}.hdf5": md5 for value, md5 in BURGERS.items()},
        "PoissonData_64x64_IN.h5": None,
        "PoissonData_64x64_OUT.h5": None,
        "ns_V1e-3_N5000_T50.mat": None,
        "piececonst_r421_N1024_smooth1.mat": None,
        "piececonst_r421_N1024_smooth2.mat": None,
    }
)
